-- adopted_fill: inserts pending rows for a worker on the adopted outbox.
-- Parameters: ?1 number of rows, ?2 payload.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
with recursive n(i) as (
    select 1
    union all
    select i + 1 from n where i < ?1
)
insert into outbox (topic, payload, created_at)
select 'bench.event', ?2, i
from n
