-- count: counts the jobs by state, in one snapshot.
-- Parameters: $1 now.
-- Returns: due, delayed, oldest_due (the time at which the first due job became due), claimed, lapsed,
--   completed, failed; and now.
-- Keeps: nothing; it only reads. If no job is open, the left join yields one row of nulls, which is not
--   counted.
-- Relies on: the partial index on open jobs, which are all scanned; those on the times at which jobs were
--   settled, which are counted without reading the jobs.
select count(o.id) filter (where o.locked_until is null
                          and (o.available_at is null or o.available_at <= m.now)) as due,
       count(o.id) filter (where o.locked_until is null and o.available_at > m.now) as delayed,
       min(coalesce(o.available_at, o.created_at)) filter (
           where o.locked_until is null
             and (o.available_at is null or o.available_at <= m.now)) as oldest_due,
       count(o.locked_until) as claimed,
       count(o.id) filter (where o.locked_until <= m.now) as lapsed,
       (select count(*) from tenure_jobs t where t.completed_at is not null) as completed,
       (select count(*) from tenure_jobs t where t.failed_at is not null) as failed,
       max(m.now) as now
from (select coalesce($1::timestamptz, statement_timestamp()) as now) as m
left join (
    select t.id, t.locked_until, t.available_at, t.created_at
    from tenure_jobs t
    where t.completed_at is null
      and t.failed_at is null
) as o on true
