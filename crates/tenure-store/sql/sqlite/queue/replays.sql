-- replays: bulk replays, the newest first.
-- Parameters: :limit, :id (null: all).
-- Returns: id, filter as JSON, items per minute, how many were expected, the id up to which all items were
--   examined, the newest id to examine, how many were replayed and refused, state, when it began, when its
--   next step is due, when it ended.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_replays, read backwards.

-- statement: replays
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
where :id is null or id = :id
order by id desc
limit :limit;
