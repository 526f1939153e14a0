-- due_deliveries: the lanes of endpoints that have due deliveries.
-- Parameters: :now.
-- Returns: version: that of all endpoints; lanes: lane.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_ready: one search leads from each lane with waiting items to the
--   next, and one more checks that lane.

-- statement: version
select version
from tenure_endpoints_version;

-- statement: lanes
with recursive filled (lane) as (
    select min(ready.lane)
    from tenure_ready as ready
    union all
    select (
        select min(ready.lane)
        from tenure_ready as ready
        where ready.lane > filled.lane
    )
    from filled
    where filled.lane is not null
)
select filled.lane
from filled
cross join tenure_endpoints as endpoint
    on endpoint.number = filled.lane / 16
where exists (
    select 1
    from tenure_ready as ready
    where ready.lane = filled.lane
        and ready.available_at <= :now
);
