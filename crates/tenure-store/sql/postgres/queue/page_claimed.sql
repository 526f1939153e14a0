-- page_claimed: the ids of the newest claimed events.
-- Parameters: $1 before this id (null: from the newest), $2 limit, $3 topic, $4 queue number, $5 since,
--   $6 ordering key (null: any).
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey. Leases are few and are scanned.
select i.id
from tenure_leases l
cross join unnest(l.ids) as i(id)
cross join lateral (
    select e.topic, e.lane, e.created_at, e.ordering_key from tenure_events e where e.id = i.id offset 0
) e
where i.id < coalesce($1::bigint, 9223372036854775807)
  and ($3::text is null or e.topic = $3)
  and ($4::int is null or e.lane >> 4 = $4)
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
order by i.id desc
limit $2
