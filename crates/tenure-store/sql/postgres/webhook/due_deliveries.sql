-- due_deliveries: the lanes of endpoints that have due deliveries.
-- Parameters: $1 now.
-- Returns: the time, the version of the endpoints, whether there are arrivals (promote.sql), all in each
--   row; lane: one row per lane, or one with null.
-- Keeps: nothing; it only reads. It jumps from lane to lane, and never into lanes of queues, where it would
--   read all claimed rows that are not vacuumed yet. Every number that is not a queue's is an endpoint's.
-- Relies on: tenure_ready_pkey; tenure_arrivals_pkey. Queues are few.
with recursive gap as materialized (
    select (q.number::bigint + 1) * 16 as first_lane,
           coalesce(lead(q.number) over (order by q.number)::bigint * 16, 2147483648) as end_lane
    from tenure_queues q
), step as (
    select r.lane, g.end_lane
    from gap g
    cross join lateral (
        select r.lane
        from tenure_ready r
        where r.lane >= g.first_lane and r.lane < g.end_lane
        order by r.lane
        limit 1
    ) as r
    where g.first_lane < g.end_lane
    union all
    select r.lane, s.end_lane
    from step s
    cross join lateral (
        select r.lane
        from tenure_ready r
        where r.lane > s.lane and r.lane < s.end_lane
        order by r.lane
        limit 1
    ) as r
), due as materialized (
    select s.lane
    from step s
    where (select r.lane
           from tenure_ready r
           where r.lane = s.lane and r.available_at <= coalesce($1::timestamptz, statement_timestamp())
           order by r.available_at
           limit 1) is not null
)
select coalesce($1::timestamptz, statement_timestamp()) as now, v.version,
       exists (select from tenure_arrivals) as has_arrivals, d.lane
from tenure_endpoints_version v
left join due d on true
where v.singleton = 1
