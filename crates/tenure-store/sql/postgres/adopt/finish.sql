-- finish: notes that nothing is left to do to an adopted table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: rows that have no number yet are left to be numbered: then it is not done.
-- Relies on: the key.
update {tables} set finished = true where name = {name}{unless};
