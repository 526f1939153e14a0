-- count: counts the items by state, in one snapshot.
-- Parameters: $1 now; $2 age in microseconds from which a head that is retried counts as retried for long.
-- Returns: per queue with its separate topics, and per endpoint with waiting deliveries: name (null for an
--   endpoint), due, delayed,
--   the first available_at that is due, the number of items that wait behind another of their key, the
--   number of the queue or endpoint; in each row also the time, and the totals of events and then of
--   deliveries: claimed, lapsed, dead, all; the number of keys whose head has been retried for long, with
--   items behind it, among the 1000 items whose next retry is latest.
-- Keeps: nothing; it only reads. A lease holds events or deliveries, never both: its first item shows
--   which.
-- Relies on: tenure_ready_pkey, tenure_backlog_pkey, tenure_dead_pkey and tenure_events_pkey, read whole;
--   tenure_setbacks_retried, from its end, and tenure_keys_pkey.
with wait as (
    select coalesce(q.number, w.number) as number, sum(due) as due, sum(delayed) as delayed,
           min(first_due_at) as first_due_at, sum(behind) as behind
    from (
        select lane >> 4 as number,
               count(*) filter (where available_at <= coalesce($1::timestamptz, statement_timestamp())) as due,
               count(*) filter (where available_at > coalesce($1::timestamptz, statement_timestamp())) as delayed,
               min(available_at) filter (where available_at <= coalesce($1::timestamptz, statement_timestamp()))
                   as first_due_at,
               0 as behind
        from tenure_ready
        group by lane >> 4
        union all
        select lane >> 4, 0, 0, null, count(*)
        from tenure_backlog
        group by lane >> 4
    ) as w
    left join tenure_queues t on t.number = w.number
    left join tenure_queues q on q.name = t.name and q.topic = ''
    group by coalesce(q.number, w.number)
)
select q.name, coalesce(w.due, 0)::bigint as due, coalesce(w.delayed, 0)::bigint as delayed,
       w.first_due_at, coalesce(w.behind, 0)::bigint as behind, coalesce(q.number, w.number) as number,
       coalesce($1::timestamptz, statement_timestamp()) as now,
       l.claimed, l.lapsed, d.dead, e.events, l.claimed_deliveries, l.lapsed_deliveries,
       d.dead_deliveries, e.deliveries, r.retried_keys
from (select name, number from tenure_queues where topic = '') q
full join wait w on w.number = q.number
cross join (
    select coalesce(sum(n) filter (where not is_delivery), 0)::bigint as claimed,
           coalesce(sum(n) filter (where not is_delivery and is_lapsed), 0)::bigint as lapsed,
           coalesce(sum(n) filter (where is_delivery), 0)::bigint as claimed_deliveries,
           coalesce(sum(n) filter (where is_delivery and is_lapsed), 0)::bigint as lapsed_deliveries
    from (
        select cardinality(ids) as n, ids[1] > 4503599627370496 as is_delivery,
               locked_until <= coalesce($1::timestamptz, statement_timestamp()) as is_lapsed
        from tenure_leases
    ) as l
) l
cross join (
    select count(*) filter (where id <= 4503599627370496) as dead,
           count(*) filter (where id > 4503599627370496) as dead_deliveries
    from tenure_dead
) d
cross join (
    select count(*) filter (where id <= 4503599627370496) as events,
           count(*) filter (where id > 4503599627370496) as deliveries
    from tenure_events
) e
cross join (
    select count(*) as retried_keys
    from (
        select id from tenure_setbacks where failures > 1 order by available_at desc nulls last limit 1000
    ) as s
    where (
        select (select true from tenure_backlog b where b.key_hash = k.key_hash limit 1)
        from tenure_keys k
        where k.key_hash = (
                  select tenure_key_hash(e.ordering_key) from tenure_events e where e.id = s.id and e.source is null
              )
          and k.head = s.id and not k.is_blocked and not k.is_paused
          and k.state_since < coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 us'
    )
) r
order by q.name, number
