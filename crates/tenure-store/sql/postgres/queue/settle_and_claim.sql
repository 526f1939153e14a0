-- settle_and_claim: settle and claim in one statement. What the settle half puts back is not seen by the
-- claim half; the next claim gets it. The two halves are the texts of settle.sql and claim.sql.
-- Parameters: $1 now, $2 token, $3 done ids, $4 retry ids, $5 their delays in us, $6 their errors,
--   $7 dead ids, $8 their reasons, $9 their errors, $10 release ids, $11 their delays in us,
--   $12 the word for the ids of the lease that are not named (null keeps them held), $13 whether a
--   lapsed lease is refused. No id is named twice.
--   For the claim: $14 token, $15 holder, $16 term in us, $17 limit, $18 lanes, $19 and $20 their cursors.
-- Returns: the answer of the settle, and beside it one row per claimed item (or one row of nulls).
-- Keeps: laws 3, 4, 6: nothing but the lease with this token is touched, and it is locked first.
--   Ids are brought together by grouping, never by joining two lists: the planner expects one row of each
--   and would compare every id with every other.
--   And those of claim.sql.
-- Relies on: what the two rely on.
with held as materialized (
    select token, holder, fence, claimed_at, ids,
           locked_until <= coalesce($1::timestamptz, now()) as is_late
    from tenure_leases
    where token = $2
    for update
), open as materialized (
    select *
    from held
    where not (is_late and $13::boolean)
), said as materialized (
    select id, bool_or(is_held) as is_held, max(outcome) as outcome, max(delay) as delay,
           max(reason) as reason, max(error) as error
    from (
        select i.id, true as is_held, null::text as outcome, null::bigint as delay,
               null::text as reason, null::text as error
        from open cross join unnest(open.ids) as i(id)
        union all
        select id, false, 'done', null, null, null
        from unnest($3::bigint[]) as u(id)
        union all
        select id, false, 'retry', delay, null, error
        from unnest($4::bigint[], $5::bigint[], $6::text[]) as u(id, delay, error)
        union all
        select id, false, 'dead', null, reason, error
        from unnest($7::bigint[], $8::text[], $9::text[]) as u(id, reason, error)
        union all
        select id, false, 'release', nullif(delay, 0), null, null
        from unnest($10::bigint[], $11::bigint[]) as u(id, delay)
    ) as word
    group by id
), item as materialized (
    select id, coalesce(outcome, $12::text) as outcome, delay, reason, error, outcome is null as is_rest
    from said
    where is_held
), rest as materialized (
    select count(*) as n, array_agg(id order by id) as ids
    from item
    where outcome is null
), emptied as (
    delete from tenure_leases l
    using open, rest
    where l.token = open.token and rest.n = 0
), kept as (
    update tenure_leases l
    set ids = rest.ids
    from open, rest
    where l.token = open.token and rest.n > 0 and rest.n < cardinality(open.ids)
), journal as (
    insert into tenure_settled
        (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select open.token, item.outcome, coalesce($1::timestamptz, now()), open.claimed_at, open.holder,
           open.fence, min(item.id), max(item.id), array_agg(item.id order by item.id)
    from open, item
    where item.outcome is not null
    group by open.token, open.claimed_at, open.holder, open.fence, item.outcome
), setback as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error, available_at)
    select id, 1, (outcome = 'retry')::int, error,
           coalesce($1::timestamptz, now()) + delay * interval '1 us'
    from item
    where outcome in ('retry', 'release')
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + excluded.failures,
        last_error = coalesce(excluded.last_error, s.last_error),
        available_at = coalesce(excluded.available_at, s.available_at)
    returning id, lane, available_at
), back as (
    insert into tenure_ready (lane, available_at, id)
    select coalesce(s.lane, e.lane), coalesce(s.available_at, e.available_at), e.id
    from setback s
    cross join lateral (
        select id, lane, available_at from tenure_events e where e.id = s.id offset 0
    ) e
), last_setback as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error)
    select id, 1, 1, error
    from item
    where outcome = 'dead'
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + 1,
        last_error = excluded.last_error
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select id, coalesce($1::timestamptz, now()), reason, error
    from item
    where outcome = 'dead'
), answer as materialized (
    select coalesce((select is_late from open), false)
               and exists (select from item where outcome is not null) as is_late,
           (select count(*) from item where is_rest and outcome is not null) as rest,
           (select array_agg(id) from said where not is_held) as refused
), lane as materialized (
    select c.lane, c.at, c.id
    from unnest($18::int[], $19::timestamptz[], $20::bigint[]) as c(lane, at, id)
    where (select q.paused from tenure_queues q where q.number = c.lane >> 4) is not true
), due as materialized (
    select r.place, r.lane, r.available_at, r.id
    from lane c
    cross join lateral (
        select ctid as place, lane, available_at, id
        from tenure_ready
        where lane = c.lane
          and available_at <= coalesce($1::timestamptz, now())
          and (available_at, id) >= (c.at, c.id)
        order by available_at, id
        limit $17
        for update skip locked
    ) as r
    limit $17
), taken as (
    delete from tenure_ready
    where ctid = any (array(select place from due))
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids)
    select $14, $15, coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + $16::bigint * interval '1 us', array_agg(id order by id)
    from due
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.is_late, a.rest, a.refused, c.*
from answer a
left join (
    select d.id, d.lane, d.available_at, l.fence, l.claimed_at, l.locked_until,
           e.event_id, e.topic, e.ordering_key, e.lane as own_lane, e.payload, e.headers, e.encoding,
           s.attempts, s.failures, s.crashes, s.generation
    from due d
    cross join lease l
    cross join lateral (select * from tenure_events e where e.id = d.id offset 0) e
    left join lateral (select * from tenure_setbacks s where s.id = d.id offset 0) s on true
) c on true
