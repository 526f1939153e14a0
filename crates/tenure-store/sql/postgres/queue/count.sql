-- count: how many items stand where, in one snapshot.
-- Parameters: $1 now.
-- Returns: per queue: name, due, delayed, the first available_at that is due; and beside each the
--   totals claimed, lapsed, dead, events, the moment, and how many wait behind another of their domain.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_ready_pkey, tenure_backlog_pkey, tenure_dead_pkey and tenure_events_pkey, read whole.
select q.name, coalesce(r.due, 0) as due, coalesce(r.delayed, 0) as delayed, r.first_due_at,
       l.claimed, l.lapsed, d.dead, e.events, coalesce($1::timestamptz, now()) as now,
       coalesce(b.behind, 0) as behind
from tenure_queues q
left join (
    select lane >> 4 as number,
           count(*) filter (where available_at <= coalesce($1::timestamptz, now())) as due,
           count(*) filter (where available_at > coalesce($1::timestamptz, now())) as delayed,
           min(available_at) filter (where available_at <= coalesce($1::timestamptz, now()))
               as first_due_at
    from tenure_ready
    group by lane >> 4
) r on r.number = q.number
left join (
    select lane >> 4 as number, count(*) as behind
    from tenure_backlog
    group by lane >> 4
) b on b.number = q.number
cross join (
    select coalesce(sum(cardinality(ids)), 0)::bigint as claimed,
           coalesce(sum(cardinality(ids)) filter (
               where locked_until <= coalesce($1::timestamptz, now())), 0)::bigint as lapsed
    from tenure_leases
) l
cross join (select count(*) as dead from tenure_dead) d
cross join (select count(*) as events from tenure_events) e
order by q.name
