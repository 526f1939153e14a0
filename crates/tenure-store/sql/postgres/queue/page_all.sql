-- page_all: the ids of the newest events or deliveries.
-- Parameters: $1 before this id, $2 limit, $3 topic, $4 the numbers of a queue, $5 since, $6 ordering
--   key, $7 until, $8 after this id, $9 endpoint number (null: any). The queue of a
--   delivery is that of its event.
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey, backwards; with a filter that matches few items it reads many rows.
select e.id
from tenure_events e
where e.id < $1::bigint and e.id > $8::bigint
  and ($3::text is null or e.topic = $3)
  and ($4::int[] is null
       or coalesce((select x.lane from tenure_events x where x.id = e.source), e.lane) >> 4 = any ($4))
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
  and ($7::timestamptz is null or e.created_at < $7)
  and ($9::int is null or e.lane >> 4 = $9)
order by e.id desc
limit $2
