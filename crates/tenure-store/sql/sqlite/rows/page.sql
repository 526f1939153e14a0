-- page: the ids of one page of rows, newest first; another statement reads the rows.
-- Parameters: :state or null for all, :since created at or after this time or null, :last the largest id,
--   :limit.
-- Returns: id.
-- Keeps: nothing; it only reads. A row whose columns match no state is left out.
-- Relies on: the key, read backwards.
-- statement: page
select t.{key}
from {table} t
where t.{key} <= :last
  and {state} = coalesce(:state, {state})
  and (:since is null or t.{created_at} >= :since)
order by t.{key} desc
limit :limit
