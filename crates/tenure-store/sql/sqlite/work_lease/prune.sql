-- prune: deletes terminal ranges that end below a bound, and the domains that then have nothing.
-- Parameters: :space, :kind, :bound, :limit; :number, a domain's; :hi of a range.
-- Returns: due: the domain's number and hi of each range.
-- Keeps: ranges go whole. A domain goes only while it is idle, with an empty backlog and no range.
-- Relies on: the unique space, tenure_offsets_age, the primary keys.

-- statement: due
select reservation, hi
from tenure_offsets
where space = (select number from tenure_watermarks where space = :space)
    and kind = :kind
    and hi < :bound
order by hi
limit :limit;

-- statement: gone
delete from tenure_offsets
where reservation = :number and hi = :hi;

-- statement: evicted
delete from tenure_reservations
where number = :number
    and current_offset is null
    and queued = 0
    and not exists (select 1 from tenure_offsets where reservation = :number);
