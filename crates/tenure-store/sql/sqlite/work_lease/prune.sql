-- prune: deletes terminal ranges that end below a bound, and the domains that are empty then.
-- Parameters: :space, :kind, :bound, :limit; :number, a domain's; :last of a range.
-- Returns: due: number of the domain and last offset, for each range to delete.
-- Keeps: only whole ranges are deleted. A domain is deleted only while it is idle, with an empty backlog
--   and no range.
-- Relies on: the unique index on the space, tenure_offsets_prunable, the primary keys.

-- statement: due
select reservation, last_offset
from tenure_offsets
where space_number = (select number from tenure_spaces where space = :space)
    and kind = :kind
    and last_offset < :bound
order by last_offset
limit :limit;

-- statement: gone
delete from tenure_offsets
where reservation = :number and last_offset = :last;

-- statement: evicted
delete from tenure_reservations
where number = :number
    and current_offset is null
    and backlog_length = 0
    and not exists (select 1 from tenure_offsets where reservation = :number);
