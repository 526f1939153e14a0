-- held: counts the rows of an adopted table that workers of Tenure hold.
-- Parameters: none.
-- Returns: one number.
-- Keeps: law 5: an adoption is not undone while a worker of Tenure holds rows. Claims of the table's own
--   workers do not count: their tokens do not begin with the name of the holder.
-- Relies on: the partial index of claimed rows.
select count(*) as held
from {table} t
where {is_claimed}
  and starts_with(t.{token}, t.{holder} || '.')
