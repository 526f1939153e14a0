-- page_pending: the ids of the newest pending events.
-- Parameters: $1 before this id (null: from the newest), $2 limit, $3 topic, $4 queue number, $5 since,
--   $6 ordering key (null: any).
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_ready_pkey and tenure_backlog_pkey, read whole: the price grows with what waits, not with what is kept.
select r.id
from (
    select id, lane from tenure_ready
    union all
    select id, lane from tenure_backlog
) as r
cross join lateral (
    select e.topic, e.lane, e.created_at, e.ordering_key from tenure_events e where e.id = r.id offset 0
) e
where r.id < coalesce($1::bigint, 9223372036854775807)
  and ($3::text is null or e.topic = $3)
  and ($4::int is null or r.lane >> 4 = $4)
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
order by r.id desc
limit $2
