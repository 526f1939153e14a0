-- settle_and_claim: settle and claim in one statement. The claim half does not see items that the settle
-- half makes pending; the next claim gets them. The two halves are the texts of settle.sql and claim.sql.
-- Parameters: $1 now, $2 token, $3 done ids, $4 retry ids, $5 their delays in microseconds, $6 their
--   errors, $7 dead ids, $8 their reasons, $9 their errors, $10 release ids, $11 their delays in
--   microseconds, $12 the outcome for the ids of the lease that are not named (null keeps them held), $13
--   whether a lapsed lease is refused, $14 whether a dead item blocks its key, $15 the version of the
--   endpoint rules under which there are no deliveries (null: any). No id is named twice. For the claim:
--   $16 token, $17 holder, $18 term in microseconds, $19 limit, $20 lanes, $21 and $22 their cursors, $23
--   rows of ready, $24 items of one key, $25 rows of each lane.
-- Returns: the answer of the settle, whether there are arrivals (promote.sql), both in each row; one row
--   per claimed item (or one row of nulls).
-- Keeps: laws 3, 4, 6, 7: it changes only the lease with this token, and locks it first. Ids are combined
--   by grouping, never by joining two lists: the planner expects one row of each and would compare every id
--   with every other. It also keeps the laws of claim.sql.
-- Relies on: the indexes of settle.sql and claim.sql.
with held as materialized (
    select token, holder, fence, claimed_at, ids, key_hashes,
           locked_until <= coalesce($1::timestamptz, statement_timestamp()) as is_late
    from tenure_leases
    where token = $2
    for update
), open as materialized (
    select *
    from held
    where not (is_late and $13::boolean)
      and ($15::bigint is null
           or $15::bigint = (select v.rules_version from tenure_endpoints_version v where v.singleton = 1))
), said as materialized (
    select id, bool_or(is_held) as is_held, max(key_hash) as key_hash, max(outcome) as outcome,
           max(delay) as delay, max(reason) as reason, max(error) as error
    from (
        select i.id, true as is_held, i.key_hash, null::text as outcome, null::bigint as delay,
               null::text as reason, null::text as error
        from open cross join unnest(open.ids, open.key_hashes) as i(id, key_hash)
        union all
        select id, false, null, 'done', null, null, null
        from unnest($3::bigint[]) as u(id)
        union all
        select id, false, null, 'retry', delay, null, error
        from unnest($4::bigint[], $5::bigint[], $6::text[]) as u(id, delay, error)
        union all
        select id, false, null, 'dead', null, reason, error
        from unnest($7::bigint[], $8::text[], $9::text[]) as u(id, reason, error)
        union all
        select id, false, null, 'release', nullif(delay, 0), null, null
        from unnest($10::bigint[], $11::bigint[]) as u(id, delay)
    ) as word
    group by id
), draft as materialized (
    select r.*,
           coalesce(id < cut, true)
               and bool_or(id = stop and outcome is null) over (partition by key_hash) as stays_held
    from (
        select id, key_hash, coalesce(outcome, $12::text) as outcome, delay, reason, error,
               outcome is null as is_unnamed,
               min(id) filter (
                   where coalesce(outcome, $12::text) is null
                      or coalesce(outcome, $12::text) in ('retry', 'release')
                      or ($14::boolean and outcome = 'dead')) over (partition by key_hash) as stop,
               min(id) filter (
                   where coalesce(outcome, $12::text) = 'release') over (partition by key_hash) as cut
        from said
        where is_held and key_hash is not null
    ) as r
), own as materialized (
    select k.key_hash, k.is_paused, k.ordering_key, r.is_open
    from (
        select key_hash, bool_or(stop is null) as is_open
        from draft
        where stop is null or (id = stop and outcome is not null)
        group by key_hash
        order by key_hash
    ) as r
    cross join lateral (
        select k.key_hash, k.is_paused, k.ordering_key
        from tenure_keys k
        where k.key_hash = r.key_hash
        for update
    ) k
), run as materialized (
    select draft.*,
           id = stop and outcome in ('retry', 'release')
               and (key_hash in (select key_hash from own where is_paused)) is true as is_held_back
    from draft
), item as materialized (
    select id, key_hash, coalesce(outcome, $12::text) as outcome, delay, reason, error,
           outcome is null as is_unnamed, false as is_behind, false as is_early
    from said
    where is_held and key_hash is null
    union all
    select id, key_hash, outcome, delay, reason, error, is_unnamed, coalesce(is_held_back, false), false
    from run
    where stop is null or id <= stop
    union all
    select id, key_hash, case when outcome = 'release' or not stays_held then 'release' end,
           case when outcome = 'release' then delay end, null, null,
           is_unnamed and outcome = 'release', outcome = 'release' or not stays_held,
           coalesce(outcome <> 'release', false) and not is_unnamed
    from run
    where id > stop
), rest as materialized (
    select count(*) as n, array_agg(id order by id) as ids,
           case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end as key_hashes
    from item
    where outcome is null
), emptied as (
    delete from tenure_leases l
    using open, rest
    where l.token = open.token and rest.n = 0
), kept as (
    update tenure_leases l
    set ids = rest.ids, key_hashes = rest.key_hashes
    from open, rest
    where l.token = open.token and rest.n > 0 and rest.n < cardinality(open.ids)
), journal as (
    insert into tenure_settled
        (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select open.token, item.outcome, coalesce($1::timestamptz, statement_timestamp()), open.claimed_at, open.holder,
           open.fence, min(item.id), max(item.id), array_agg(item.id order by item.id)
    from open, item
    where item.outcome is not null
    group by open.token, open.claimed_at, open.holder, open.fence, item.outcome
), setback as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error, available_at)
    select id, 1, (outcome = 'retry')::int, error,
           coalesce($1::timestamptz, statement_timestamp()) + delay * interval '1 us'
    from item
    where outcome in ('retry', 'release') and not is_behind
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + excluded.failures,
        last_error = coalesce(excluded.last_error, s.last_error),
        available_at = coalesce(excluded.available_at, s.available_at)
    returning id, lane, available_at
), back as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select coalesce(s.lane, e.lane), coalesce(s.available_at, e.available_at), e.id,
           tenure_key_hash(e.ordering_key)
    from setback s
    cross join lateral (
        select id, lane, available_at, ordering_key from tenure_events e where e.id = s.id offset 0
    ) e
), setback_behind as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error, available_at)
    select id, 1, (outcome = 'retry')::int, error,
           coalesce($1::timestamptz, statement_timestamp()) + delay * interval '1 us'
    from item
    where is_behind
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + excluded.failures,
        last_error = coalesce(excluded.last_error, s.last_error),
        available_at = coalesce(excluded.available_at, s.available_at)
    returning id, lane, available_at, turn
), behind as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(e.ordering_key), coalesce(s.turn, e.id), e.id, coalesce(s.lane, e.lane),
           coalesce(s.available_at, e.available_at)
    from setback_behind s
    cross join lateral (
        select id, lane, available_at, ordering_key from tenure_events e where e.id = s.id offset 0
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
    select id, coalesce($1::timestamptz, statement_timestamp()), reason, error
    from item
    where outcome = 'dead'
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from own o
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = o.key_hash and o.is_open and not o.is_paused
            order by b.turn
            limit 1
        ) b))
    returning key_hash, id, lane, available_at
), head as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), standing as (
    update tenure_keys k
    set head = n.head, is_blocked = n.is_blocked,
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from (
        select key_hash, max(head) as head, bool_or(is_blocked) as is_blocked
        from (
            select key_hash, null::bigint as head, false as is_blocked from own
            union all
            select key_hash, id, false from promoted
            union all
            select key_hash, id, outcome = 'dead'
            from run
            where id = stop and outcome is not null and not is_held_back
        ) as s
        group by key_hash
    ) as n
    where k.key_hash = n.key_hash and (k.head is distinct from n.head or n.is_blocked)
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from own
    where is_open and not is_paused and (key_hash in (select key_hash from promoted)) is not true
), answer as materialized (
    select coalesce((select is_late from open), false)
               and exists (select from item where outcome is not null) as is_late,
           (select count(*) from item where is_unnamed and outcome = $12::text) as rest,
           (select array_agg(id) from said where not is_held) as refused,
           (select array_agg(id) from item where is_early) as early,
           exists (select from promoted) as has_promoted,
           coalesce($15::bigint <> (select v.rules_version
                                     from tenure_endpoints_version v
                                     where v.singleton = 1), false)
               as is_stale
), lane as materialized (
    select c.lane, c.at, c.id, c.most
    from unnest($20::int[], $21::timestamptz[], $22::bigint[], $25::bigint[]) as c(lane, at, id, most)
    where (select q.is_paused from tenure_queues q where q.number = c.lane >> 4) is not true
), due as materialized (
    select r.row_id, r.lane, r.available_at, r.id, r.key_hash
    from lane c
    cross join lateral (
        select ctid as row_id, lane, available_at, id, key_hash
        from tenure_ready
        where lane = c.lane
          and available_at <= coalesce($1::timestamptz, statement_timestamp())
          and (available_at, id) >= (c.at, c.id)
        order by available_at, id
        limit c.most
        for update skip locked
    ) as r
    limit $23
), leader as materialized (
    select row_number() over () as nth, row_id, lane, available_at, id, key_hash
    from due
    where key_hash is not null
), chosen as materialized (
    select row_id, lane, available_at, id, key_hash, is_follower
    from (
        select f.*, row_number() over (order by nth, turn) as pos
        from (
            select nth, 0::bigint as turn, row_id, lane, available_at, id, key_hash, false as is_follower
            from leader
            union all
            select l.nth, b.turn, b.row_id, b.lane, b.available_at, b.id, l.key_hash, true
            from leader l
            cross join lateral (
                select b.row_id, b.turn, b.lane, b.available_at, b.id,
                       bool_and(b.lane = l.lane and b.id = b.turn and b.id > l.id
                                and b.available_at <= coalesce($1::timestamptz, statement_timestamp()))
                           over (order by b.turn) as is_next
                from (
                    select ctid as row_id, turn, lane, available_at, id
                    from tenure_backlog
                    where key_hash = l.key_hash
                    order by turn
                    limit $24::bigint - 1
                ) as b
            ) as b
            where $24::bigint > 1
              and b.is_next
              and (select s.id from tenure_setbacks s where s.id = l.id) is null
        ) as f
    ) as f
    where pos <= $19::bigint - (select count(*) from due where key_hash is null)
), taken as (
    delete from tenure_ready
    where ctid = any (array(
        select row_id from due where key_hash is null
        union all
        select row_id from chosen where not is_follower))
), followed as (
    delete from tenure_backlog
    where ctid = any (array(select row_id from chosen where is_follower))
    returning id, lane, available_at, key_hash
), got as materialized (
    select id, lane, available_at, key_hash, false as is_follower
    from due
    where key_hash is null
    union all
    select id, lane, available_at, key_hash, false
    from chosen
    where not is_follower
    union all
    select id, lane, available_at, key_hash, true
    from followed
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids, key_hashes)
    select $16, $17, coalesce($1::timestamptz, statement_timestamp()),
           coalesce($1::timestamptz, statement_timestamp()) + $18::bigint * interval '1 us', array_agg(id order by id),
           case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end
    from got
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.is_late, a.rest, a.refused, a.early, a.has_promoted, a.is_stale,
       exists (select from tenure_arrivals) as has_arrivals, c.*,
       (select max(q.number) from tenure_queues q) as last_queue
from answer a
left join (
    select d.id, d.lane, d.available_at, l.fence, l.claimed_at, l.locked_until,
           e.event_id, e.topic, e.ordering_key, e.lane as own_lane, e.payload, e.headers, e.encoding,
           s.attempts, s.failures, s.crashes, s.generation, d.is_follower,
           (select count(*) from due) as seen, e.source
    from got d
    cross join lease l
    cross join lateral (select * from tenure_events e where e.id = d.id offset 0) e
    left join lateral (select * from tenure_setbacks s where s.id = d.id offset 0) s on true
) c on true
