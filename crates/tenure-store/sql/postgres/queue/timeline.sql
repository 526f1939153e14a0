-- timeline: the ended holds of an item, oldest first.
-- Parameters: $1 id.
-- Returns: holder, fence, outcome, claimed_at, settled_at.
-- Keeps: nothing; it only reads, and it reads no token.
-- Relies on: tenure_settled_span.
select holder, fence, outcome, claimed_at, settled_at
from tenure_settled
where int8range(lo, hi, '[]') @> $1::bigint and $1::bigint = any (ids)
order by fence, settled_at
