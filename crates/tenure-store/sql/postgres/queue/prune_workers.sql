-- prune_workers: deletes workers that have not reported for long.
-- Parameters: $1 now, $2 age in microseconds.
-- Returns: nothing.
-- Keeps: workers that still report.
-- Relies on: the table is small.
delete from tenure_workers
where reported_at < coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 us'
