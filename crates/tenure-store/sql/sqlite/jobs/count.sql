-- count: counts the jobs by state, in one snapshot.
-- Parameters: :now.
-- Returns: due, delayed, oldest_due (the time at which the first due job became due), claimed, lapsed,
--   completed, failed.
-- Keeps: nothing; it only reads.
-- Relies on: the partial index on open jobs, which are all scanned; those on the times at which jobs were
--   settled, which are counted without reading the jobs.
-- statement: count
select count(*) filter (where t.locked_until is null
                          and (t.available_at is null or t.available_at <= :now)),
       count(*) filter (where t.locked_until is null and t.available_at > :now),
       min(ifnull(t.available_at, t.created_at)) filter (
           where t.locked_until is null
             and (t.available_at is null or t.available_at <= :now)),
       count(t.locked_until),
       count(*) filter (where t.locked_until <= :now),
       (select count(*) from tenure_jobs c indexed by tenure_jobs_completed_at
        where c.completed_at is not null),
       (select count(*) from tenure_jobs c indexed by tenure_jobs_failed_at
        where c.failed_at is not null)
from tenure_jobs t indexed by tenure_jobs_open
where t.completed_at is null
  and t.failed_at is null
