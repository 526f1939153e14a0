-- adopted: the tables that were adopted or are half way there, and what they are made of now.
-- Parameters: none.
-- Returns: per table: name, description, what was added, finished, adopted_at; the text that makes it,
--   its columns and its indexes, as lists in JSON; by name.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
-- statement: adopted
select r.name, r.description, r.added, r.finished, r.adopted_at,
       (select s.sql from sqlite_schema s where s.type = 'table' and s.name = r.name),
       (select json_group_array(c.name) from pragma_table_info(r.name) c),
       (select json_group_array(i.name) from sqlite_schema i where i.type = 'index' and i.tbl_name = r.name)
from tenure_tables r
order by r.name
