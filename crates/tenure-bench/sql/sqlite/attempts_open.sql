-- attempts_open: writes down that calls are about to be made, as a bare loop does it: one row for each.
-- Parameters: ?1 how many, ?2 now.
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
