-- adopted: the tables that were adopted or are half way there.
-- Parameters: none.
-- Returns: per table: name, description, what was added, finished, adopted_at; by name.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
-- statement: adopted
select name, description, added, finished, adopted_at
from tenure_tables
order by name
