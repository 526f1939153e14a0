-- idle_with_backlog: domains that have a backlog but nothing in flight.
-- Parameters: $1 space, $2 limit.
-- Returns: domain, the head of its backlog.
-- Keeps: sorted by name; nothing is locked, so a domain may be in flight when the caller reads the answer.
-- Relies on: tenure_spaces_pkey, tenure_reservations_idle, tenure_reservation_backlog_pkey.
select r.domain,
       (select b.log_offset
        from tenure_reservation_backlog b
        where b.reservation = r.number
        order by b.queue_position
        limit 1)
from tenure_reservations r
where r.space_number = (select s.number from tenure_spaces s where s.space = $1::text)
  and r.current_offset is null
  and r.backlog_length > 0
order by r.domain
limit $2
