-- columns: the columns of a table, to check whether it can be leased.
-- Parameters: $1 the table's name, quoted.
-- Returns: name of each column, plain and quoted, in the table's order; no row: the table does not exist.
-- Keeps: nothing; it only reads.
-- Relies on: the indexes of the catalogue.
select attname::text as name, quote_ident(attname) as quoted
from pg_attribute
where attrelid = to_regclass($1)
  and attnum > 0
  and not attisdropped
order by attnum
