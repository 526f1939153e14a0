-- look: the kind and the columns of a table to be adopted.
-- Parameters: :table its name.
-- Returns: per column: kind of the relation, rowless, name, type as written, is_nullable, is_unique (by
--   itself), is_generated; no row: the table does not exist.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: look
select l.type, l.wr, c.name, c.type,
       not (c."notnull" or c.pk > 0 and upper(c.type) = 'INTEGER'),
       c.pk > 0 and (select count(*) from pragma_table_info(:table) p where p.pk > 0) = 1
       or exists (
           select 1
           from pragma_index_list(:table) i
           where i."unique"
             and not i.partial
             and (select count(*) from pragma_index_info(i.name)) = 1
             and (select n.name from pragma_index_info(i.name) n) = c.name
       ),
       c.hidden in (2, 3)
from pragma_table_list l, pragma_table_xinfo(:table) c
where l.schema = 'main'
  and l.name = :table
order by c.cid
