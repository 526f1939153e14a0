-- noted: the time of a recorded adoption.
-- Parameters: :table its name.
-- Returns: adopted_at; no row: the table is not adopted.
-- Keeps: nothing; it only reads. Each step of an adoption runs it, to check that the adoption was not
--   undone.
-- Relies on: the key.
-- statement: noted
select adopted_at from tenure_tables where name = :table
