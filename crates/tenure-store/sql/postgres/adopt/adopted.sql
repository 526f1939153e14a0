-- adopted: all recorded adoptions, complete or not, with the current columns and indexes of the tables.
-- Parameters: $1 the mark.
-- Returns: per table: name, description, added columns and indexes, finished, adopted_at; the schema in
--   which the search path finds its name, whether the recorded schema has a table of this name, its columns
--   with Tenure's mark, its other columns, its indexes; by name.
-- Keeps: nothing; it only reads.
-- Relies on: the key, and the indexes of the catalogue.
select r.name, r.description::text as description, r.added::text as added, r.is_finished, r.adopted_at,
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
