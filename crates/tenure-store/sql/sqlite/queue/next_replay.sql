-- next_replay: the replay that is due for longest, for one step; and when the others are due.
-- Parameters: :now; :only this one (null: any); others: :id, the one that was taken (null: none).
-- Returns: due: the operation, as replays.sql; others: when the next of the others is due.
-- Keeps: nothing; one writer takes a step at a time.
-- Relies on: tenure_replays_running.

-- statement: due
select
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
    ended_at
from tenure_replays
where state = 'running'
    and next_at <= :now
    and (:only is null or id = :only)
order by next_at
limit 1;

-- statement: others
select next_at
from tenure_replays
where state = 'running'
    and (:only is null or id = :only)
    and id is not :id
order by next_at
limit 1;
