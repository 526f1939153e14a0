-- finish: notes that nothing is left to do to an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: the key.
-- statement: finish
update {tables} set finished = 1 where name = {name};
