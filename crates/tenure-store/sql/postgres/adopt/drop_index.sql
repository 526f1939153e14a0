-- drop_index: takes away one of our indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing of the table's own is touched: the name was noted when it was made, and is
--   that of an index on this very table.
-- Relies on: nothing.
drop index {concurrently} if exists {index};
