-- allows: the status words that a check constraint rejects.
-- Parameters: :words, a list in JSON.
-- Returns: each rejected word.
-- Keeps: nothing; it writes no row, and evaluates the expression of the constraint.
-- Relies on: the constraint uses no column except the status. The names of the other columns occur twice:
--   if the constraint uses one, the name is ambiguous, which is an error.
-- statement: allows
select {table}.{status}
from (select cast(value as text) as {status} from json_each(:words)) as {table},
     (select {others}) as a, (select {others}) as b
where not coalesce(({check}), 1)
