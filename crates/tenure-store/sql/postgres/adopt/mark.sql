-- mark: says of a column that it is ours: only what bears the mark is ever taken away again.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the mark comes with the column, in one transaction, and goes with it; a copy of the database has it.
-- Relies on: nothing.
comment on column {table}.{column} is {mark};
