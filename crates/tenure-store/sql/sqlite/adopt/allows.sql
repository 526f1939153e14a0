-- allows: which words a check constraint on the status refuses.
-- Parameters: :words, a list in JSON.
-- Returns: each word that is refused.
-- Keeps: nothing; no row is written, the constraint's own expression is asked.
-- Relies on: the constraint knows no column but the status. The names of the others are there
--   twice: one that it knows is ambiguous, and an error.
-- statement: allows
select {table}.{status}
from (select cast(value as text) as {status} from json_each(:words)) as {table},
     (select {others}) as a, (select {others}) as b
where not coalesce(({check}), 1)
