-- page_all: the ids of the newest events.
-- Parameters: $1 before this id (null: from the newest), $2 limit, $3 topic, $4 queue number, $5 since,
--   $6 ordering key (null: any).
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey, backwards; a filter that matches little walks far.
select e.id
from tenure_events e
where e.id < coalesce($1::bigint, 9223372036854775807)
  and ($3::text is null or e.topic = $3)
  and ($4::int is null or e.lane >> 4 = $4)
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
order by e.id desc
limit $2
