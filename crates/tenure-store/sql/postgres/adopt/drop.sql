-- drop: takes away the columns that were added to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing of the table's own is touched: the names were noted when they were added.
-- Relies on: nothing.
alter table {table}
    {removals};
