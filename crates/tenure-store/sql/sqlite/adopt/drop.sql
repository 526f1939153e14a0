-- drop: drops a column that was added to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the table's own columns stay: the names were recorded when the columns were added, and the columns
--   have Tenure's mark in the text of this very table.
-- Relies on: nothing.
-- statement: drop
alter table {table} drop column {column};
