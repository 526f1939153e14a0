-- settle_done_and_claim: ends a whole lease as done and claims the next batch: the common case, without
-- a look at single ids. With no lanes it only settles.
-- Parameters: $1 now, $2 token, $3 the ids of the lease, ascending; for the claim: $4 token, $5 holder,
--   $6 term in us, $7 limit, $8 lanes, $9 and $10 their cursors.
-- Returns: settled (0: the lease is not exactly these ids, nothing was settled; take settle.sql), is_late,
--   and beside it one row per claimed item (or one row of nulls).
-- Keeps: laws 3, 4, 6: the lease goes only if token and ids are the same. And those of claim.sql.
-- Relies on: tenure_leases_pkey, and what claim.sql relies on.
with ended as (
    delete from tenure_leases
    where token = $2 and ids = $3::bigint[]
    returning token, holder, fence, claimed_at, ids,
              locked_until <= coalesce($1::timestamptz, now()) as is_late
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'done', coalesce($1::timestamptz, now()), claimed_at, holder, fence, ids[1],
           ids[cardinality(ids)], ids
    from ended
), lane as materialized (
    select c.lane, c.at, c.id
    from unnest($8::int[], $9::timestamptz[], $10::bigint[]) as c(lane, at, id)
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
        limit $7
        for update skip locked
    ) as r
    limit $7
), taken as (
    delete from tenure_ready
    where ctid = any (array(select place from due))
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids)
    select $4, $5, coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + $6::bigint * interval '1 us', array_agg(id order by id)
    from due
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.settled, a.is_late, c.*
from (select count(*) as settled, coalesce(bool_or(is_late), false) as is_late from ended) a
left join (
    select d.id, d.lane, d.available_at, l.fence, l.claimed_at, l.locked_until,
           e.event_id, e.topic, e.ordering_key, e.lane as own_lane, e.payload, e.headers, e.encoding,
           s.attempts, s.failures, s.crashes, s.generation
    from due d
    cross join lease l
    cross join lateral (select * from tenure_events e where e.id = d.id offset 0) e
    left join lateral (select * from tenure_setbacks s where s.id = d.id offset 0) s on true
) c on true
