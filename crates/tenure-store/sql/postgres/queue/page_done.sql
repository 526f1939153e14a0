-- page_done: the ids of the newest done events or deliveries.
-- Parameters: $1 before this id, $2 limit, $3 topic, $4 the numbers of a queue, $5 since, $6 ordering
--   key, $7 until, $8 after this id, $9 endpoint number (null: any). The queue of a
--   delivery is that of its event.
-- Returns: ids, newest first.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey, backwards; for each row the primary keys of the tables of the other
--   states; with a filter that matches few items it reads many rows. Leases are few and are scanned.
select e.id
from tenure_events e
left join lateral (
    select s.lane, s.available_at, s.turn from tenure_setbacks s where s.id = e.id offset 0
) s on true
where e.id < $1::bigint and e.id > $8::bigint
  and ($3::text is null or e.topic = $3)
  and ($4::int[] is null
       or coalesce((select x.lane from tenure_events x where x.id = e.source), e.lane) >> 4 = any ($4))
  and ($5::timestamptz is null or e.created_at >= $5)
  and ($6::text is null or e.ordering_key = $6)
  and ($7::timestamptz is null or e.created_at < $7)
  and ($9::int is null or e.lane >> 4 = $9)
  and (select r.id
       from tenure_ready r
       where r.lane = coalesce(s.lane, e.lane)
         and r.available_at = coalesce(s.available_at, e.available_at)
         and r.id = e.id) is null
  and (select b.id
       from tenure_backlog b
       where b.key_hash = tenure_key_hash(e.ordering_key)
         and b.turn = coalesce(s.turn, e.id)
         and b.id = e.id) is null
  and (select d.id from tenure_dead d where d.id = e.id) is null
  and e.id not in (select i.id from tenure_leases l cross join unnest(l.ids) as i(id))
order by e.id desc
limit $2
