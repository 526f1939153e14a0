-- idle_with_backlog: domains in which nothing is in flight although something waits.
-- Parameters: :space, :limit.
-- Returns: domain, the head of its backlog.
-- Keeps: by name.
-- Relies on: the unique space, tenure_reservations_kick, the primary key of the backlog.

-- statement: idle_with_backlog
select
    reserved.domain,
    (
        select waiting.log_offset
        from tenure_reservation_backlog as waiting
        where waiting.reservation = reserved.number
        order by waiting.place
        limit 1
    )
from tenure_reservations as reserved
where reserved.space = (select number from tenure_watermarks where space = :space)
    and reserved.current_offset is null
    and reserved.queued > 0
order by reserved.domain
limit :limit;
