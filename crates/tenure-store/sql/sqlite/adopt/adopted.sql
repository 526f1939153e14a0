-- adopted: all recorded adoptions, complete or not, with the current columns and indexes of the tables.
-- Parameters: none.
-- Returns: per table: name, description, added columns and indexes, finished, adopted_at; its `create
--   table` text, its columns and its indexes, as lists in JSON; by name.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
-- statement: adopted
select r.name, r.description, r.added, r.is_finished, r.adopted_at,
       (select s.sql from sqlite_schema s where s.type = 'table' and s.name = r.name),
       (select json_group_array(c.name) from pragma_table_info(r.name) c),
       (select json_group_array(i.name) from sqlite_schema i where i.type = 'index' and i.tbl_name = r.name)
from tenure_tables r
order by r.name
