-- page: the ids of one page of rows, newest first; another statement reads the rows.
-- Parameters: $1 a state or null for all, $2 created at or after this time or null, $3 the largest id, $4
--   limit.
-- Returns: id.
-- Keeps: nothing; it only reads. A row whose columns match no state is left out.
-- Relies on: the key, read backwards.
select t.{key} as id
from {table} t
where t.{key} <= $3::bigint
  and {state} = coalesce($1::text, {state})
  and ($2::timestamptz is null or t.{created_at} >= $2)
order by t.{key} desc
limit $4::bigint
