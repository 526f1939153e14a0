-- idle_with_backlog: domains in which nothing is in flight although something waits.
-- Parameters: $1 space, $2 limit.
-- Returns: domain, the head of its backlog.
-- Keeps: by name; nothing is locked, so a domain may be in flight by the time it is told.
-- Relies on: tenure_watermarks_pkey, tenure_reservations_kick, tenure_reservation_backlog_pkey.
select r.domain,
       (select b.log_offset
        from tenure_reservation_backlog b
        where b.reservation = r.number
        order by b.place
        limit 1)
from tenure_reservations r
where r.space = (select s.number from tenure_watermarks s where s.space = $1::text)
  and r.current_offset is null
  and r.queued > 0
order by r.domain
limit $2
