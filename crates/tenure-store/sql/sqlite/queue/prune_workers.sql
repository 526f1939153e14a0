-- prune_workers: deletes workers that have not reported for long.
-- Parameters: :before, workers whose last report is older are deleted.
-- Returns: nothing.
-- Keeps: workers that still report.
-- Relies on: the table is small.

-- statement: prune_workers
delete from tenure_workers
where reported_at < :before;
