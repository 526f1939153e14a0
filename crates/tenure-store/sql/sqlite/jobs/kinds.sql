-- kinds: the open jobs of each kind by state, and the number that failed recently.
-- Parameters: :now, :since the time from which a failure is recent.
-- Returns: per kind, by name: kind; due, oldest_due (the time at which the first became due); delayed;
--   running; lapsed, lapsed_at (when the first did), lapsed_job; crashing (lapsed twice or more),
--   crashing_job; failed (but not cancelled), failed_job.
-- Keeps: nothing; it only reads.
-- Relies on: the partial index on open jobs, which are all scanned, and that on the times at which jobs
--   failed.
-- statement: kinds
with looked as materialized (
    select t.kind, t.id, ifnull(t.available_at, t.created_at) as due_at, t.locked_until, t.crashes,
           false as has_failed
    from tenure_jobs t indexed by tenure_jobs_open
    where t.completed_at is null
      and t.failed_at is null
    union all
    select t.kind, t.id, null, null, 0, true
    from tenure_jobs t indexed by tenure_jobs_failed_at
    where t.failed_at > :since
      and ifnull(substr(t.settled_token, -7), '') <> ' buried'
), known as (
    select l.kind, l.id, l.due_at, l.locked_until, l.has_failed,
           not l.has_failed and l.locked_until is null and l.due_at <= :now as is_due,
           ifnull(l.locked_until <= :now, false) as has_lapsed,
           l.crashes >= 2 as is_crashing
    from looked l
)
select k.kind,
       count(*) filter (where k.is_due),
       min(k.due_at) filter (where k.is_due),
       count(*) filter (where not k.has_failed and k.locked_until is null and not k.is_due),
       count(*) filter (where k.locked_until > :now),
       count(*) filter (where k.has_lapsed),
       min(k.locked_until) filter (where k.has_lapsed),
       min(k.id) filter (where k.has_lapsed),
       count(*) filter (where k.is_crashing),
       min(k.id) filter (where k.is_crashing),
       count(*) filter (where k.has_failed),
       max(k.id) filter (where k.has_failed)
from known k
group by k.kind
order by k.kind
