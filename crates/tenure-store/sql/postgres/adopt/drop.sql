-- drop: drops the columns that were added to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the table's own columns stay: the names were recorded when the columns were added, and the columns
--   have Tenure's mark on this very table.
-- Relies on: nothing.
alter table {table}
    {removals};
