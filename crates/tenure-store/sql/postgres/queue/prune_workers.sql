-- prune_workers: deletes workers that nobody has seen for long.
-- Parameters: $1 now, $2 how long, in us.
-- Returns: nothing.
-- Keeps: whoever reports.
-- Relies on: the table being small.
delete from tenure_workers
where seen_at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 us'
