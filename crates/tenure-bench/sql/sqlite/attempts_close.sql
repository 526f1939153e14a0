-- attempts_close: records the end and the status of calls.
-- Parameters: ?1 ids as a JSON array, ?2 status, ?3 now.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: the primary key.
update bench_attempt
set ended_at = ?3, status = ?2, outcome = 'delivered'
where id in (select value from json_each(?1)) and ended_at is null
