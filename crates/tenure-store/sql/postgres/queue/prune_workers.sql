-- prune_workers: deletes workers that nobody has seen for a day.
-- Parameters: $1 now.
-- Returns: nothing.
-- Keeps: whoever reports.
-- Relies on: the table being small.
delete from tenure_workers
where seen_at < coalesce($1::timestamptz, now()) - interval '1 day'
