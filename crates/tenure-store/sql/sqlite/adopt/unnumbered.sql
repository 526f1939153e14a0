-- unnumbered: returns whether rows of an adopted table lack the added key.
-- Parameters: none.
-- Returns: one boolean.
-- Keeps: nothing; it only reads.
-- Relies on: the unique index on the added key, which also finds the rows without a number.
-- statement: unnumbered
select exists (select 1 from {table} t where t."tenure_id" is null) as is_unnumbered
