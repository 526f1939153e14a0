-- made: the text that makes a table that is to be adopted.
-- Parameters: :table its name.
-- Returns: the text.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: made
select sql from sqlite_schema where type = 'table' and name = :table
