-- columns: what a table is made of.
-- Parameters: :table its name.
-- Returns: version: a number that is another one as soon as any table of the file has been changed.
--   columns: of each column its name, the name as a statement writes it, its declared type, and whether
--   its value is made from others; no row: there is no such table. has_triggers: whether there are
--   others than our own.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: version
pragma schema_version
-- statement: columns
select name, format('"%w"', name), type, hidden in (2, 3)
from pragma_table_xinfo(:table)
where hidden <> 1
order by cid
-- statement: has_triggers
select exists (
    select 1
    from sqlite_schema s
    where s.type = 'trigger'
      and s.tbl_name = :table collate nocase
      and s.name <> :table || '_adopted' collate nocase
)
