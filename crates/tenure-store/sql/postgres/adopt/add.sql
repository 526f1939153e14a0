-- add: gives a table the columns that it lacks.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: no row is written: every column may be null or has a default that is the same for all rows.
--   What is added bears our mark from the first moment.
-- Relies on: nothing. The table is taken for a moment, and a short wait for it is given up.
alter table {table}
    {additions};
{marks}
