-- delayed: items that wait for another attempt, in the order of lane, time and id.
-- Parameters: $1 now, $2 queue (null: all), $3 endpoint number (null: events), $4 topic, $5 limit, $6, $7
--   and $8 the lane, time and id to continue after.
-- Returns: lane, available_at and id of each item that was examined, and whether it matches.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_ready_pkey, tenure_events_pkey, tenure_setbacks_pkey.
with lane as materialized (
    select n.number * 16 + s.step as lane
    from (
        select q.number
        from tenure_queues q
        where $3::int is null and ($2::text is null or q.name = $2)
        union all
        select $3::int
        where $3::int is not null
    ) as n
    cross join generate_series(0, 8) as s(step)
    where n.number * 16 + s.step >= $6::int
    order by 1
), waiting as materialized (
    select r.lane, r.available_at, r.id
    from lane c
    cross join lateral (
        select r.lane, r.available_at, r.id
        from tenure_ready r
        where r.lane = c.lane
          and r.available_at > coalesce($1::timestamptz, statement_timestamp())
          and (r.available_at, r.id) > (
              case when c.lane = $6::int then $7::timestamptz else '-infinity' end,
              case when c.lane = $6::int then $8::bigint else 0 end)
        order by r.available_at, r.id
        limit $5
    ) r
    limit $5
)
select w.lane, w.available_at, w.id,
       (s.attempts > 0 and ($4::text is null or e.topic = $4)) is true as is_wanted
from waiting w
cross join lateral (select e.topic from tenure_events e where e.id = w.id offset 0) e
left join lateral (select s.attempts from tenure_setbacks s where s.id = w.id offset 0) s on true
