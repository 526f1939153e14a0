-- cancel_replay: ends a replay that is running; what it put back stays so.
-- Parameters: :id, :now.
-- Returns: the operation, as replays.sql; no row when it has ended or there is none.
-- Keeps: a step that is under way is waited for, and is the last.
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
