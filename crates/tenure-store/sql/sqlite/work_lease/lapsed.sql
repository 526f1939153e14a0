-- lapsed: reservations whose term is over.
-- Parameters: :now, :space, :limit.
-- Returns: domain, the offset in flight.
-- Keeps: the longest lapsed first. It ends nothing: the next acquire of the offset does.
-- Relies on: the unique index on the space, tenure_reservations_lapse.

-- statement: lapsed
select domain, current_offset
from tenure_reservations
where space_number = (select number from tenure_spaces where space = :space)
    and locked_until <= :now
order by locked_until, domain
limit :limit;
