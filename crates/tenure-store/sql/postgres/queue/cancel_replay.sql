-- cancel_replay: ends a running replay; items already replayed stay pending.
-- Parameters: $1 now, $2 id.
-- Returns: the operation, as replays.sql; no row when it has ended or does not exist.
-- Keeps: it waits for a step in progress, which is then the last one.
-- Relies on: tenure_replays_pkey.
update tenure_replays
set state = 'cancelled', ended_at = coalesce($1::timestamptz, statement_timestamp())
where id = $2::bigint and state = 'running'
returning id, filter::text, rate_per_minute, expected_items, reached_id, last_id, replayed, refused, state,
       created_at, next_step_at, ended_at
