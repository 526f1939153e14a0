-- move_replay: writes down how far a replay came in this step.
-- Parameters: $1 now, $2 id, $3 the id up to which all was looked at, $4 how many were put back, $5 how many
--   were refused, $6 microseconds to wait before the next step, $7 whether all was looked at.
-- Returns: the operation, as replays.sql.
-- Keeps: it is in hand since next_replay.sql, and is written in the transaction that put the items back.
-- Relies on: tenure_replays_pkey.
update tenure_replays
set reached = $3::bigint,
    replayed = replayed + $4::bigint,
    refused = refused + $5::bigint,
    next_at = coalesce($1::timestamptz, now()) + $6::bigint * interval '1 microsecond',
    state = case when $7::boolean then 'done' else state end,
    ended_at = case when $7::boolean then coalesce($1::timestamptz, now()) end
where id = $2::bigint
returning id, filter::text, rate, expected, reached, last_id, replayed, refused, state,
       created_at, next_at, ended_at
