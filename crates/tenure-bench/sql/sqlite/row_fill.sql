-- row_fill: inserts pending rows for the row loop.
-- Parameters: ?1 number of rows, ?2 payload.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
with recursive n(i) as (
    select 1
    union all
    select i + 1 from n where i < ?1
)
insert into bench_row (topic, payload, created_at, available_at)
select 'bench.event', ?2, i, i
from n
