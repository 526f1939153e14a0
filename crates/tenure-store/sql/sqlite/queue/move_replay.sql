-- move_replay: writes down how far a replay came in this step.
-- Parameters: :id; :reached, the id up to which all was looked at; :replayed and :refused, how many of
--   this step; :next_at, when the next one is due; :ended_at, if all was looked at (null: not yet).
-- Returns: the operation, as replays.sql.
-- Keeps: it is written in the transaction that put the items back.
-- Relies on: the primary key of tenure_replays.

-- statement: moved
update tenure_replays
set
    reached = :reached,
    replayed = replayed + :replayed,
    refused = refused + :refused,
    next_at = :next_at,
    state = case when :ended_at is null then state else 'done' end,
    ended_at = :ended_at
where id = :id
returning
    id,
    filter,
    rate,
    expected,
    reached,
    last_id,
    replayed,
    refused,
    state,
    created_at,
    next_at,
    ended_at;
