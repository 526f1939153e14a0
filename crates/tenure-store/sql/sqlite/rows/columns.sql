-- columns: what a table has, to see whether it can be leased.
-- Parameters: :table its name.
-- Returns: columns: name and declared type of each column; no row: there is no such table. reacts: whether
--   the table has a say in what is written to it: by triggers other than our own, or by generated columns.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: columns
select name, type from pragma_table_info(:table)
-- statement: reacts
select exists (
    select 1
    from sqlite_schema s
    where s.type = 'trigger'
      and s.tbl_name = :table collate nocase
      and s.name <> :table || '_adopted' collate nocase
) or exists (
    select 1 from pragma_table_xinfo(:table) c where c.hidden in (2, 3)
)
