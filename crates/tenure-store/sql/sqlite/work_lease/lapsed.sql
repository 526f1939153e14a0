-- lapsed: reservations whose term is over.
-- Parameters: :now, :space, :limit.
-- Returns: domain, the offset in flight.
-- Keeps: those that are over for the longest first. It ends nothing: whoever acquires the offset does.
-- Relies on: the unique space, tenure_reservations_lapse.

-- statement: lapsed
select domain, current_offset
from tenure_reservations
where space = (select number from tenure_watermarks where space = :space)
    and locked_until <= :now
order by locked_until, domain
limit :limit;
