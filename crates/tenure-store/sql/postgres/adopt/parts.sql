-- parts: the indexes of a table that is to be adopted, the check constraints that its status has a part
-- in, and names that we need and others have.
-- Parameters: $1 the table's name, quoted; $2 the names that we need; $3 the status column, if any.
-- Returns: per part: what it is, name, is_valid (of an index: its making was not broken off; of a check: it
--   knows no other column), the check's expression.
-- Keeps: nothing; it only reads.
-- Relies on: the catalogue's own indexes.
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
