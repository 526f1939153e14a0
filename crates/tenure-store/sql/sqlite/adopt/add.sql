-- add: adds a missing column to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: no row is written: every column may be null or has a default that is the same for all rows.
-- Relies on: nothing.
-- statement: add
alter table {table} add column {addition};
