-- noted: since when a table is noted as adopted.
-- Parameters: :table its name.
-- Returns: adopted_at; no row: it is not.
-- Keeps: nothing; it only reads. Who takes a step of an adoption asks first: it was not given
--   back since.
-- Relies on: the key.
-- statement: noted
select adopted_at from tenure_tables where name = :table
