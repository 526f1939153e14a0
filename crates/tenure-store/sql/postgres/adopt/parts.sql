-- parts: the indexes of a table to be adopted, the check constraints that use its status, and the names
-- needed by Tenure that other objects have.
-- Parameters: $1 the table's name, quoted; $2 the names that Tenure needs; $3 the status column, if any.
-- Returns: per part: kind, name, is_valid (for an index: its creation was completed; for a check: it uses
--   no other column), the check's expression.
-- Keeps: nothing; it only reads.
-- Relies on: the indexes of the catalogue.
select 'index' as what, c.relname::text as name, i.indisvalid as is_valid, '' as expression
from pg_index i
join pg_class c on c.oid = i.indexrelid
where i.indrelid = to_regclass($1)
union all
select 'check', k.conname::text, cardinality(k.conkey) = 1, pg_get_expr(k.conbin, k.conrelid)
from pg_constraint k
join pg_attribute a on a.attrelid = k.conrelid and a.attnum = any (k.conkey)
where k.conrelid = to_regclass($1)
  and k.contype = 'c'
  and a.attname = $3
union all
select 'taken', o.relname::text, true, ''
from pg_class t
join pg_class o on o.relnamespace = t.relnamespace
where t.oid = to_regclass($1)
  and o.relname = any ($2::text[])
  and not exists (select 1 from pg_index i where i.indexrelid = o.oid and i.indrelid = t.oid)
  and not exists (
      select 1
      from pg_depend d
      where d.objid = o.oid
        and d.classid = 'pg_class'::regclass
        and d.refobjid = t.oid
        and d.deptype = 'a'
  )
order by name
