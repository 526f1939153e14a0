-- next_replay: the replay that has been due the longest, for one step; and when the others are due.
-- Parameters: :now; :only this one (null: any); others: :id, the chosen one (null: none).
-- Returns: due: the operation, as replays.sql; others: when the next of the others is due.
-- Keeps: nothing; the one writer takes one step at a time.
-- Relies on: tenure_replays_running.

-- statement: due
select
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
    ended_at
from tenure_replays
where state = 'running'
    and next_step_at <= :now
    and (:only is null or id = :only)
order by next_step_at
limit 1;

-- statement: others
select next_step_at
from tenure_replays
where state = 'running'
    and (:only is null or id = :only)
    and id is not :id
order by next_step_at
limit 1;
