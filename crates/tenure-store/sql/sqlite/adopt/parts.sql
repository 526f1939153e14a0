-- parts: the indexes of a table that is to be adopted, and names that we need and others have.
-- Parameters: :table its name, :names the names that we need, a list in JSON.
-- Returns: what it is, name.
-- Keeps: nothing; it only reads.
-- Relies on: nothing. A trigger on the table that does what ours does is ours.
-- statement: parts
select 'index', name from pragma_index_list(:table)
union all
select 'taken', s.name
from sqlite_schema s
where s.name in (select value from json_each(:names))
  and not (s.tbl_name = :table and s.type = 'index')
  and not (s.tbl_name = :table and s.type = 'trigger' and s.sql like '%where rowid = new.rowid;%')
