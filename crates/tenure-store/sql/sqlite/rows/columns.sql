-- columns: what a table has, to see whether it can be leased.
-- Parameters: :table its name.
-- Returns: name and declared type of each column; no row: there is no such table.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: columns
select name, type from pragma_table_info(:table)
