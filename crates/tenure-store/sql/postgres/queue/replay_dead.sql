-- replay_dead: the next dead items of a bulk replay.
-- Parameters: $1 after this id, $2 up to this one, $3 limit, $4 the maximum number of items to examine, $5
--   topic, $6 queue, $7 since, $8 ordering key, $9 until, $10 endpoint number, $11 the event of a delivery
--   (null: any). The queue of a delivery is that of its event.
-- Returns: one row: the ids, ascending; and the last id of the examined range.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_dead_pkey, tenure_events_pkey. It reads at most the given number of rows, even if few
--   match.
with bound as materialized (
    select coalesce((select d.id
                     from tenure_dead d
                     where d.id > $1::bigint and d.id <= $2::bigint
                     order by d.id
                     offset $4::bigint
                     limit 1), $2::bigint) as id
)
select array(
           select d.id
           from tenure_dead d
           cross join lateral (
               select e.topic, e.lane, e.source, e.created_at, e.ordering_key
               from tenure_events e
               where e.id = d.id
               offset 0
           ) e
           where d.id > $1::bigint and d.id <= (select id from bound)
             and ($5::text is null or e.topic = $5)
             and ($6::text is null
                  or coalesce((select x.lane from tenure_events x where x.id = e.source), e.lane) >> 4
                     in (select q.number from tenure_queues q where q.name = $6))
             and ($7::timestamptz is null or e.created_at >= $7)
             and ($8::text is null or e.ordering_key = $8)
             and ($9::timestamptz is null or e.created_at < $9)
             and ($10::int is null or e.lane >> 4 = $10)
             and ($11::bigint is null or e.source = $11)
           order by d.id
           limit $3::bigint
       ),
       (select id from bound)
