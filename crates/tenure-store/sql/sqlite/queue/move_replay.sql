-- move_replay: records the progress of a replay after a step.
-- Parameters: :id; :reached, the id up to which all items were examined; :replayed and :refused, the
--   numbers of this step; :next_at, when the next step is due; :ended_at, if all items were examined (null:
--   not yet).
-- Returns: the operation, as replays.sql.
-- Keeps: it runs in the transaction that replayed the items.
-- Relies on: the primary key of tenure_replays.

-- statement: moved
update tenure_replays
set
    reached_id = :reached,
    replayed = replayed + :replayed,
    refused = refused + :refused,
    next_step_at = :next_at,
    state = case when :ended_at is null then state else 'done' end,
    ended_at = :ended_at
where id = :id
returning
    id,
    filter,
    rate_per_minute,
    expected_items,
    reached_id,
    last_id,
    replayed,
    refused,
    state,
    created_at,
    next_step_at,
    ended_at;
