-- lapsed: reservations whose term is over.
-- Parameters: $1 now, $2 space, $3 limit.
-- Returns: domain, the offset in flight.
-- Keeps: the longest lapsed first. It ends nothing: the next acquire of the offset does.
-- Relies on: tenure_spaces_pkey, tenure_reservations_lapse.
select r.domain, r.current_offset
from tenure_reservations r
where r.space_number = (select s.number from tenure_spaces s where s.space = $2::text)
  and r.locked_until <= coalesce($1::timestamptz, statement_timestamp())
order by r.locked_until, r.domain
limit $3
