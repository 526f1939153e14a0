-- index: makes one of our indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: writers go on while it is made. One that was broken off is left behind and must be dropped first.
-- Relies on: nothing.
create {kind_of_index} concurrently if not exists {index} on {table} ({index_columns}){index_where};
