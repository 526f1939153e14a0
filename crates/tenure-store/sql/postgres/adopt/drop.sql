-- drop: takes away the columns that were added to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing of the table's own is touched: the names were noted when they were
--   added, and bear our mark on this very table.
-- Relies on: nothing.
alter table {table}
    {removals};
