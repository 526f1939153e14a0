-- index: creates one of Tenure's indexes on an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: writers continue while it is created. If the creation is interrupted, an invalid index stays
--   behind and must be dropped first.
-- Relies on: nothing.
create {kind_of_index} concurrently if not exists {index} on {table} ({index_columns}){index_where};
