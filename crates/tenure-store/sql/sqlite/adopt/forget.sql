-- forget: deletes the record of an adoption that was undone.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: it runs in the transaction that removes the added columns and indexes.
-- Relies on: the key.
-- statement: forget
delete from {tables} where name = {name};
