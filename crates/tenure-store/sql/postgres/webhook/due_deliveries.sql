-- due_deliveries: the lanes of endpoints that have something due.
-- Parameters: $1 now.
-- Returns: the moment, the version of the endpoints, whether a domain is rung for (place.sql), and beside it
--   per lane (or one row of nulls): lane.
-- Keeps: nothing; it only reads. It jumps from lane to lane, and never into those of queues: there it would
--   walk past all that was claimed and is not vacuumed yet. What is no queue's number is an endpoint's.
-- Relies on: tenure_ready_pkey; tenure_arrivals_pkey. Queues are few.
with recursive gap as materialized (
    select (q.number::bigint + 1) * 16 as lo,
           coalesce(lead(q.number) over (order by q.number)::bigint * 16, 2147483648) as hi
    from tenure_queues q
), step as (
    select r.lane, g.hi
    from gap g
    cross join lateral (
        select r.lane
        from tenure_ready r
        where r.lane >= g.lo and r.lane < g.hi
        order by r.lane
        limit 1
    ) as r
    where g.lo < g.hi
    union all
    select r.lane, s.hi
    from step s
    cross join lateral (
        select r.lane
        from tenure_ready r
        where r.lane > s.lane and r.lane < s.hi
        order by r.lane
        limit 1
    ) as r
), due as materialized (
    select s.lane
    from step s
    where (select r.lane
           from tenure_ready r
           where r.lane = s.lane and r.available_at <= coalesce($1::timestamptz, now())
           order by r.available_at
           limit 1) is not null
)
select coalesce($1::timestamptz, now()) as now, v.version,
       exists (select from tenure_arrivals) as is_rung, d.lane
from tenure_endpoints_version v
left join due d on true
where v.one = 1
