-- columns: what a table has, to see whether it can be leased.
-- Parameters: $1 the table's name, quoted.
-- Returns: name of each column, as it is and quoted, in the table's order; no row: there is no such table.
-- Keeps: nothing; it only reads.
-- Relies on: the catalogue's own indexes.
select attname::text as name, quote_ident(attname) as quoted
from pg_attribute
where attrelid = to_regclass($1)
  and attnum > 0
  and not attisdropped
order by attnum
