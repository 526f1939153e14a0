-- prune_workers: deletes workers that nobody has seen for long.
-- Parameters: :before, the moment since which.
-- Returns: nothing.
-- Keeps: whoever reports.
-- Relies on: the table being small.

-- statement: prune_workers
delete from tenure_workers
where seen_at < :before;
