-- finish: records that the adoption of a table is complete.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: it does nothing while rows without a number exist.
-- Relies on: the key.
update {tables} set is_finished = true where name = {name}{unless};
