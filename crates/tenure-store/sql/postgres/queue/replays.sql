-- replays: bulk replays, the newest first.
-- Parameters: $1 limit, $2 only this one (null: all).
-- Returns: id, filter as json, items per minute, how many were expected, the id up to which all items were
--   examined, the newest id to examine, how many were replayed and refused, state, when it began, when its
--   next step is due, when it ended.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_replays_pkey, backwards.
select id, filter::text, rate_per_minute, expected_items, reached_id, last_id, replayed, refused, state,
       created_at, next_step_at, ended_at
from tenure_replays
where $2::bigint is null or id = $2
order by id desc
limit $1::bigint
