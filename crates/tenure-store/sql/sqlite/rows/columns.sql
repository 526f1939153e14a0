-- columns: the columns and triggers of a table.
-- Parameters: :table its name.
-- Returns: version: a number that changes whenever the schema of the file changes. columns: of each
--   column its name, the name quoted for a statement, its declared type, and whether its value is
--   generated from others; no row: the table does not exist. has_triggers: whether the table has
--   triggers other than Tenure's.
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
