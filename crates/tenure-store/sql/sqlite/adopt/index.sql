-- index: makes one of our indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: it is there whole or not at all.
-- Relies on: nothing.
-- statement: index
create {kind_of_index} if not exists {index} on {table} ({index_columns}){index_where};
