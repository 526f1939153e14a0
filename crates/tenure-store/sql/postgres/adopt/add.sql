-- add: adds the missing columns to a table.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: no row is written: every column may be null or has a default that is the same for all rows. The
--   added columns have Tenure's mark from the start.
-- Relies on: nothing. The statement locks the table briefly, and gives up after a short wait for the lock.
alter table {table}
    {additions};
{marks}
