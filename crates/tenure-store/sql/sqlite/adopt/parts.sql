-- parts: the indexes of a table to be adopted, and the names needed by Tenure that other objects have.
-- Parameters: :table its name, :names the names that Tenure needs, a list in JSON.
-- Returns: kind, name.
-- Keeps: nothing; it only reads.
-- Relies on: nothing. A trigger on the table that does the same as Tenure's counts as Tenure's.
-- statement: parts
select 'index', name from pragma_index_list(:table)
union all
select 'taken', s.name
from sqlite_schema s
where s.name in (select value from json_each(:names))
  and not (s.tbl_name = :table and s.type = 'index')
  and not (s.tbl_name = :table and s.type = 'trigger' and s.sql like '%where rowid = new.rowid;%')
