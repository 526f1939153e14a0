-- mark: marks a column as added by Tenure: only marked columns are ever removed.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the mark is set in the transaction that adds the column, and is dropped with it; a copy of the
--   database has it.
-- Relies on: nothing.
comment on column {table}.{column} is {mark};
