-- attempts_open: records the start of calls as a bare loop does, one row per call.
-- Parameters: $1 number of calls.
-- Returns: the ids.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_attempt (began_at)
select now()
from generate_series(1, $1::bigint)
returning id
