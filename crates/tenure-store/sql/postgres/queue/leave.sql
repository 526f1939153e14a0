-- leave: records that a worker stopped.
-- Parameters: $1 now, $2 worker.
-- Returns: nothing.
-- Keeps: only the first stop is recorded.
-- Relies on: tenure_workers_pkey.
update tenure_workers
set left_at = coalesce($1::timestamptz, statement_timestamp())
where worker = $2 and left_at is null
