-- index: creates one of Tenure's indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the index exists completely or not at all.
-- Relies on: nothing.
-- statement: index
create {kind_of_index} if not exists {index} on {table} ({index_columns}){index_where};
