-- idle_with_backlog: domains that have a backlog but nothing in flight.
-- Parameters: :space, :limit.
-- Returns: domain, the head of its backlog.
-- Keeps: sorted by name.
-- Relies on: the unique index on the space, tenure_reservations_idle, the primary key of the backlog.

-- statement: idle_with_backlog
select
    reserved.domain,
    (
        select waiting.log_offset
        from tenure_reservation_backlog as waiting
        where waiting.reservation = reserved.number
        order by waiting.queue_position
        limit 1
    )
from tenure_reservations as reserved
where reserved.space_number = (select number from tenure_spaces where space = :space)
    and reserved.current_offset is null
    and reserved.backlog_length > 0
order by reserved.domain
limit :limit;
