-- cancel_replay: ends a replay that is running; what it put back stays so.
-- Parameters: $1 now, $2 id.
-- Returns: the operation, as replays.sql; no row when it has ended or there is none.
-- Keeps: a step that is under way is waited for, and is the last.
-- Relies on: tenure_replays_pkey.
update tenure_replays
set state = 'cancelled', ended_at = coalesce($1::timestamptz, now())
where id = $2::bigint and state = 'running'
returning id, filter::text, rate, expected, reached, last_id, replayed, refused, state,
       created_at, next_at, ended_at
