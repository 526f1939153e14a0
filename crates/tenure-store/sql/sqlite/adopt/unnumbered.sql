-- unnumbered: whether rows of an adopted table lack the key that was added.
-- Parameters: none.
-- Returns: one truth.
-- Keeps: nothing; it only reads.
-- Relies on: the unique index on the added key, which also finds the rows that have none.
-- statement: unnumbered
select exists (select 1 from {table} t where t."tenure_id" is null) as is_unnumbered
