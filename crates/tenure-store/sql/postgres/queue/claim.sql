-- claim: moves due items from ready into one new lease and returns them with their payloads.
-- Parameters: $1 now, $2 token, $3 holder, $4 term in us, $5 limit, $6 lanes in the order of their
--   urgency, $7 and $8 the cursor of each lane: nothing before (time, id) is looked at.
-- Returns: per item: id, lane, available_at, the lease's fence, claimed_at, locked_until, the event
--   and its counters. The caller sorts.
-- Keeps: laws 1, 2, 6. The probe locks row by row and stops at the limit (no order by outside of it: a
--   sort would lock `limit` rows in every lane). Rows go by ctid: they are locked and never updated.
-- Relies on: tenure_ready_pkey, tenure_events_pkey, tenure_setbacks_pkey. `offset 0` leaves the planner
--   one plan only; without it a plan made for `limit $5` hashes all events.
with lane as materialized (
    select c.lane, c.at, c.id
    from unnest($6::int[], $7::timestamptz[], $8::bigint[]) as c(lane, at, id)
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
        limit $5
        for update skip locked
    ) as r
    limit $5
), taken as (
    delete from tenure_ready
    where ctid = any (array(select place from due))
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids)
    select $2, $3, coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + $4::bigint * interval '1 us', array_agg(id order by id)
    from due
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select d.id, d.lane, d.available_at, l.fence, l.claimed_at, l.locked_until,
       e.event_id, e.topic, e.ordering_key, e.lane as own_lane, e.payload, e.headers, e.encoding,
       s.attempts, s.failures, s.crashes, s.generation
from due d
cross join lease l
cross join lateral (select * from tenure_events e where e.id = d.id offset 0) e
left join lateral (select * from tenure_setbacks s where s.id = d.id offset 0) s on true
