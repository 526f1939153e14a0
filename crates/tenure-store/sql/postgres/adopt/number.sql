-- number: numbers the rows that are written from now on. The sequence is dropped with the column.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: no number is used twice. An existing sequence is never taken over.
-- Relies on: nothing.
create sequence {key_sequence};
alter sequence {key_sequence} owned by {table}.{key};
alter table {table} alter column {key} set default nextval('{key_sequence}');
