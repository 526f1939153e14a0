-- allows: which words a check constraint on the status refuses.
-- Parameters: $1 the words.
-- Returns: each word that is refused.
-- Keeps: nothing; no row is written, the constraint's own expression is asked.
-- Relies on: the constraint knows no column but the status.
select w.word
from unnest($1::text[]) as w(word)
cross join lateral (select w.word::{status_type} as {status}) as t
where not coalesce(({check}), true)
