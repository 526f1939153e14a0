-- lapsed: the rows whose leases have lapsed, for a reap that goes row by row.
-- Parameters: $1 now, $2 limit, $3 whether a term that ends exactly now is over.
-- Returns: ids, the longest lapsed first.
-- Keeps: nothing; it only reads: the reap of each row checks again.
-- Relies on: the partial index of claimed rows, which are few and are all scanned.
select t.{key} as id
from {table} t
where {is_claimed}
  and (t.{until} < coalesce($1::timestamptz, statement_timestamp())
       or $3::boolean and t.{until} = coalesce($1::timestamptz, statement_timestamp()))
order by t.{until}, t.{key}
limit $2::bigint
