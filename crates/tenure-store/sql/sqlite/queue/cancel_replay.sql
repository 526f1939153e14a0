-- cancel_replay: ends a running replay; items already replayed stay pending.
-- Parameters: :id, :now.
-- Returns: the operation, as replays.sql; no row when it has ended or does not exist.
-- Keeps: it waits for a step in progress, which is then the last one.
-- Relies on: the primary key of tenure_replays.

-- statement: cancelled
update tenure_replays
set
    state = 'cancelled',
    ended_at = :now
where id = :id
    and state = 'running'
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
