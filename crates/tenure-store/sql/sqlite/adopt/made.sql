-- made: the `create table` text of a table to be adopted.
-- Parameters: :table its name.
-- Returns: the text.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: made
select sql from sqlite_schema where type = 'table' and name = :table
