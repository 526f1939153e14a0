-- timeline: the ended leases of an item, oldest first.
-- Parameters: $1 id.
-- Returns: holder, fence, outcome, claimed_at, settled_at.
-- Keeps: nothing; it only reads, and it reads no token.
-- Relies on: tenure_settled_id_range.
select holder, fence, outcome, claimed_at, settled_at
from tenure_settled
where int8range(first_id, last_id, '[]') @> $1::bigint and $1::bigint = any (ids)
order by fence, settled_at
