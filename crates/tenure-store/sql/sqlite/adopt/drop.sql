-- drop: takes away a column that was added to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing of the table's own is touched: the names were noted when they were
--   added, and bear our mark in the text of this very table.
-- Relies on: nothing.
-- statement: drop
alter table {table} drop column {column};
