-- page_dead: the ids of the newest dead events or deliveries.
-- Parameters: $1 before this id, $2 limit, $3 topic, $4 the numbers of a queue, $5 since, $6 ordering
--   key, $7 until, $8 after this id, $9 endpoint number (null: any). The queue of a
--   delivery is that of its event.
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_dead_pkey, backwards; tenure_events_pkey.
select d.id
from tenure_dead d
cross join lateral (
    select e.topic, e.lane, e.created_at, e.ordering_key, e.source
    from tenure_events e
    where e.id = d.id
    offset 0
) e
where d.id < $1::bigint and d.id > $8::bigint
  and ($3::text is null or e.topic = $3)
  and ($4::int[] is null
       or coalesce((select x.lane from tenure_events x where x.id = e.source), e.lane) >> 4 = any ($4))
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
  and ($7::timestamptz is null or e.created_at < $7)
  and ($9::int is null or e.lane >> 4 = $9)
order by d.id desc
limit $2
