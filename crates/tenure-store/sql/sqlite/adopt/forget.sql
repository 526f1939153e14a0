-- forget: a table that was given back is adopted no more.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: it is written in the transaction that takes away what was added.
-- Relies on: the key.
-- statement: forget
delete from {tables} where name = {name};
