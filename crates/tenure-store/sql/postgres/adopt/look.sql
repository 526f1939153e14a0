-- look: the kind and the columns of a table to be adopted.
-- Parameters: $1 the table's name, quoted.
-- Returns: per column: kind of the relation, name, type as written, is_nullable, is_unique (by itself),
--   is_generated, the table's schema; no row: the table does not exist.
-- Keeps: nothing; it only reads.
-- Relies on: the indexes of the catalogue.
select case
           when c.relispartition then 'partition'
           when c.relkind = 'r' and exists (select 1 from pg_inherits h where h.inhparent = c.oid)
               then 'parent'
           else c.relkind::text
       end as kind, coalesce(a.attname::text, '') as name,
       coalesce(format_type(a.atttypid, a.atttypmod), '') as declared,
       not coalesce(a.attnotnull, false) as is_nullable,
       exists (
           select 1
           from pg_index i
           where i.indrelid = c.oid
             and i.indisunique
             and i.indisvalid
             and i.indnkeyatts = 1
             and i.indkey[0] = a.attnum
             and i.indpred is null
             and i.indexprs is null
       ) as is_unique,
       coalesce(a.attgenerated::text, '') <> '' as is_generated, n.nspname::text as schema
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.oid = to_regclass($1)
order by a.attnum
