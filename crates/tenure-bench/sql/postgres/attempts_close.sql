-- attempts_close: records the end and the status of calls.
-- Parameters: $1 ids, $2 status.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: the primary key.
update bench_attempt
set ended_at = now(), status = $2, outcome = 'delivered'
where id = any ($1::bigint[]) and ended_at is null
