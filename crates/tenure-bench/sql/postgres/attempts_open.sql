-- attempts_open: writes down that calls are about to be made, as a bare loop does it: one row for each.
-- Parameters: $1 how many.
-- Returns: the ids.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_attempt (began_at)
select now()
from generate_series(1, $1::bigint)
returning id
