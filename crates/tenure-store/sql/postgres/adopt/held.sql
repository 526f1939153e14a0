-- held: how many rows of an adopted table are claimed by workers of ours.
-- Parameters: none.
-- Returns: one number.
-- Keeps: law 5: a table is not given back under a holder of ours. What the table's own workers have
--   claimed does not count: their tokens do not begin with the name of the holder.
-- Relies on: the partial index of claimed rows.
select count(*) as held
from {table} t
where {is_claimed}
  and starts_with(t.{token}, t.{holder} || '.')
