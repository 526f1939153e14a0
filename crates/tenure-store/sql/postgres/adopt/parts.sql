-- parts: the indexes and the check constraints of a table that is to be adopted.
-- Parameters: $1 the table's name, quoted.
-- Returns: per part: whether it is an index, name, is_valid (an index whose making was broken off is not).
-- Keeps: nothing; it only reads.
-- Relies on: the catalogue's own indexes.
select true as is_index, c.relname::text as name, i.indisvalid as is_valid
from pg_index i
join pg_class c on c.oid = i.indexrelid
where i.indrelid = to_regclass($1)
union all
select false, conname::text, true
from pg_constraint
where conrelid = to_regclass($1)
  and contype = 'c'
order by name
