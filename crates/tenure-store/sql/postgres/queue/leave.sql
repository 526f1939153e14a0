-- leave: writes down that a worker took its leave.
-- Parameters: $1 now, $2 worker.
-- Returns: nothing.
-- Keeps: a leave is taken once; a second one changes nothing.
-- Relies on: tenure_workers_pkey.
update tenure_workers
set left_at = coalesce($1::timestamptz, now())
where worker = $2 and left_at is null
