-- drop_index: drops one of Tenure's indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the table's own indexes stay: the name was recorded when the index was created, and the index is
--   on this very table.
-- Relies on: nothing.
drop index {concurrently} if exists {index};
