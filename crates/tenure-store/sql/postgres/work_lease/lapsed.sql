-- lapsed: reservations whose term is over.
-- Parameters: $1 now, $2 space, $3 limit.
-- Returns: domain, the offset in flight.
-- Keeps: those that are over for the longest first. It ends nothing: whoever acquires the offset does.
-- Relies on: tenure_watermarks_pkey, tenure_reservations_lapse.
select r.domain, r.current_offset
from tenure_reservations r
where r.space = (select s.number from tenure_watermarks s where s.space = $2::text)
  and r.locked_until <= coalesce($1::timestamptz, now())
order by r.locked_until, r.domain
limit $3
