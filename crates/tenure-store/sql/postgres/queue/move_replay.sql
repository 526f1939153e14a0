-- move_replay: records the progress of a replay after a step.
-- Parameters: $1 now, $2 id, $3 the id up to which all items were examined, $4 how many were replayed, $5
--   how many were refused, $6 microseconds until the next step, $7 whether all items were examined.
-- Returns: the operation, as replays.sql.
-- Keeps: next_replay.sql has locked the replay; this runs in the transaction that replayed the items.
-- Relies on: tenure_replays_pkey.
update tenure_replays
set reached_id = $3::bigint,
    replayed = replayed + $4::bigint,
    refused = refused + $5::bigint,
    next_step_at = coalesce($1::timestamptz, statement_timestamp()) + $6::bigint * interval '1 microsecond',
    state = case when $7::boolean then 'done' else state end,
    ended_at = case when $7::boolean then coalesce($1::timestamptz, statement_timestamp()) end
where id = $2::bigint
returning id, filter::text, rate_per_minute, expected_items, reached_id, last_id, replayed, refused, state,
       created_at, next_step_at, ended_at
