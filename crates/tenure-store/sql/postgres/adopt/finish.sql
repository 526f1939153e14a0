-- finish: notes that nothing is left to do to an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: the key.
update {tables} set finished = true where name = {name};
