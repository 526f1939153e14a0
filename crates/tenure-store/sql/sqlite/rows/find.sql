-- find: all facts of rows.
-- Parameters: :ids as a JSON array.
-- Returns: the whole rows that exist, each with its state; the reader leaves out the tokens, which are
--   secrets of their holders.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
-- statement: find
select {state} as ":state", t.*
from {table} t
where t.{key} in (select value from json_each(:ids))
