-- page: the ids of one page of a list, newest first; it is filled afterwards.
-- Parameters: :state or null for all, :since written at or after this moment or null, :last the
--   largest id, :limit.
-- Returns: id.
-- Keeps: nothing; it only reads. A row in no state is no item, and hides none.
-- Relies on: the key, read backwards.
-- statement: page
select t.{key}
from {table} t
where t.{key} <= :last
  and {state} = coalesce(:state, {state})
  and (:since is null or t.{created_at} >= :since)
order by t.{key} desc
limit :limit
