-- finish: records that the adoption of a table is complete.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: it does nothing while rows without a number exist.
-- Relies on: the key.
-- statement: finish
update {tables} set is_finished = 1 where name = {name}{unless};
