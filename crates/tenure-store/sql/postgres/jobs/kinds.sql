-- kinds: the open jobs of each kind by state, and the number that failed recently.
-- Parameters: $1 now, $2 age in microseconds up to which a failure is recent.
-- Returns: per kind, by name: kind; due, oldest_due (the time at which the first became due); delayed;
--   running; lapsed, lapsed_at (when the first did), lapsed_job; crashing (lapsed twice or more),
--   crashing_job; failed (but not cancelled), failed_job; and now.
-- Keeps: nothing; it only reads.
-- Relies on: the partial index on open jobs, which are all scanned, and that on the times at which jobs
--   failed.
with moment as materialized (
    select coalesce($1::timestamptz, clock_timestamp()) as now
), looked as materialized (
    select t.kind, t.id, coalesce(t.available_at, t.created_at) as due_at, t.locked_until, t.crashes,
           false as has_failed
    from tenure_jobs t
    where t.completed_at is null
      and t.failed_at is null
    union all
    select t.kind, t.id, null, null, 0, true
    from tenure_jobs t
    where t.failed_at > (select m.now - $2::bigint * interval '1 microsecond' from moment m)
      and coalesce(right(t.settled_token, 7), '') <> ' buried'
), known as (
    select l.kind, l.id, l.due_at, l.locked_until, l.has_failed, m.now,
           not l.has_failed and l.locked_until is null and l.due_at <= m.now as is_due,
           coalesce(l.locked_until <= m.now, false) as has_lapsed,
           l.crashes >= 2 as is_crashing
    from looked l cross join moment m
)
select k.kind,
       count(*) filter (where k.is_due) as due,
       min(k.due_at) filter (where k.is_due) as oldest_due,
       count(*) filter (where not k.has_failed and k.locked_until is null and not k.is_due) as delayed,
       count(*) filter (where k.locked_until > k.now) as running,
       count(*) filter (where k.has_lapsed) as lapsed,
       min(k.locked_until) filter (where k.has_lapsed) as lapsed_at,
       min(k.id) filter (where k.has_lapsed) as lapsed_job,
       count(*) filter (where k.is_crashing) as crashing,
       min(k.id) filter (where k.is_crashing) as crashing_job,
       count(*) filter (where k.has_failed) as failed,
       max(k.id) filter (where k.has_failed) as failed_job,
       max(k.now) as now
from known k
group by k.kind
order by k.kind
