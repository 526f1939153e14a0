-- parts: the indexes of a table that is to be adopted. (SQLite does not list check constraints.)
-- Parameters: :table its name.
-- Returns: name.
-- Keeps: nothing; it only reads.
-- Relies on: nothing.
-- statement: parts
select name from pragma_index_list(:table)
