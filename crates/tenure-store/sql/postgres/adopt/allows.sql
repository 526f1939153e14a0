-- allows: the status words that a check constraint rejects.
-- Parameters: $1 the words.
-- Returns: each rejected word.
-- Keeps: nothing; it writes no row, and evaluates the expression of the constraint.
-- Relies on: the constraint uses no column except the status.
select w.word
from unnest($1::text[]) as w(word)
cross join lateral (select w.word::{status_type} as {status}) as t
where not coalesce(({check}), true)
