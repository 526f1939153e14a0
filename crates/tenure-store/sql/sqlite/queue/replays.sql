-- replays: replays on record, the newest first.
-- Parameters: :limit, :id (null: all).
-- Returns: id, filter as JSON, items per minute, how many were expected, the id up to which all was
--   looked at, the newest id to look at, how many were put back and refused, state, when it began, when
--   its next step is due, when it ended.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_replays, read backwards.

-- statement: replays
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
where :id is null or id = :id
order by id desc
limit :limit;
