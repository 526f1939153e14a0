-- row_fill: inserts pending rows for the row loop.
-- Parameters: $1 number of rows, $2 payload.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_row (topic, payload)
select 'bench.event', $2::json
from generate_series(1, $1::bigint)
