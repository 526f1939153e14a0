-- timeline: the ended leases of an item, oldest first.
-- Parameters: :id.
-- Returns: holder, fence, outcome, claimed_at, settled_at.
-- Keeps: no token is shown.
-- Relies on: tenure_settled_id_range: a row that names the item ends within its block of 1024 ids.

-- statement: timeline
select holder, fence, outcome, claimed_at, settled_at
from tenure_settled indexed by tenure_settled_id_range
where last_id between :id and :id | 1023
    and first_id <= :id
    and instr(',' || trim(ids, '[]') || ',', ',' || :id || ',') > 0
order by entry;
