-- adopted: the tables that were adopted or are half way there, and what bears our mark there now.
-- Parameters: $1 the mark.
-- Returns: per table: name, description, what was added, finished, adopted_at; the schema that its name
--   leads to, whether it is where it was noted, its columns with our mark, its other columns, its indexes;
--   by name.
-- Keeps: nothing; it only reads.
-- Relies on: the key, and the catalogue's own indexes.
select r.name, r.description::text as description, r.added::text as added, r.finished, r.adopted_at,
       n.nspname::text as leads_to,
       exists (
           select 1
           from pg_class o
           join pg_namespace s on s.oid = o.relnamespace
           where o.relname = r.name
             and s.nspname = r.added ->> 'schema'
       ) as is_kept,
       array(
           select a.attname::text
           from pg_attribute a
           where a.attrelid = c.oid
             and a.attnum > 0
             and not a.attisdropped
             and col_description(a.attrelid, a.attnum) = $1
       ) as marked,
       array(
           select a.attname::text
           from pg_attribute a
           where a.attrelid = c.oid
             and a.attnum > 0
             and not a.attisdropped
             and col_description(a.attrelid, a.attnum) is distinct from $1
       ) as unmarked,
       array(
           select i.relname::text
           from pg_index x
           join pg_class i on i.oid = x.indexrelid
           where x.indrelid = c.oid
       ) as indexes
from tenure_tables r
left join pg_class c on c.oid = to_regclass(quote_ident(r.name))
left join pg_namespace n on n.oid = c.relnamespace
order by r.name
