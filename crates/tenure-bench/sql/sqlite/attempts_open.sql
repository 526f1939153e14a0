-- attempts_open: records the start of calls as a bare loop does, one row per call.
-- Parameters: ?1 number of calls, ?2 now.
-- Returns: the ids.
-- Keeps: nothing.
-- Relies on: nothing.
with recursive n(i) as (
    select 1
    union all
    select i + 1 from n where i < ?1
)
insert into bench_attempt (began_at)
select ?2
from n
returning id
