-- replay_done: the next done items of a bulk replay.
-- Parameters: $1 after this id, $2 up to this one, $3 limit, $4 the maximum number of items to examine, $5
--   topic, $6 queue, $7 since, $8 ordering key, $9 until, $10 endpoint number, $11 the event of a delivery
--   (null: any). The queue of a delivery is that of its event.
-- Returns: one row: the ids, ascending; and the last id of the examined range.
-- Keeps: nothing; it only reads. An item that is neither pending, claimed nor dead is done.
-- Relies on: tenure_events_pkey; for each row the primary keys of the tables of the other states. It reads
--   at most the given number of rows, even if few match. Leases are few and are scanned.
with bound as materialized (
    select coalesce((select e.id
                     from tenure_events e
                     where e.id > $1::bigint and e.id <= $2::bigint
                     order by e.id
                     offset $4::bigint
                     limit 1), $2::bigint) as id
)
select array(
           select e.id
           from tenure_events e
           left join lateral (
               select s.lane, s.available_at, s.turn from tenure_setbacks s where s.id = e.id offset 0
           ) s on true
           where e.id > $1::bigint and e.id <= (select id from bound)
             and ($5::text is null or e.topic = $5)
             and ($6::text is null
                  or coalesce((select x.lane from tenure_events x where x.id = e.source), e.lane) >> 4
                     in (select q.number from tenure_queues q where q.name = $6))
             and ($7::timestamptz is null or e.created_at >= $7)
             and ($8::text is null or e.ordering_key = $8)
             and ($9::timestamptz is null or e.created_at < $9)
             and ($10::int is null or e.lane >> 4 = $10)
             and ($11::bigint is null or e.source = $11)
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
           order by e.id
           limit $3::bigint
       ),
       (select id from bound)
