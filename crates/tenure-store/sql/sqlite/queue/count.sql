-- count: counts the items by state.
-- Parameters: :now; :lane and :next_lane, the first lane of a queue or an endpoint and the first lane after
--   it; :kind, event or delivery; :long, the time before which a head that is retried counts as retried for
--   long.
-- Returns: queues: name and number; endpoints: number; waiting, for one of them: due, delayed, and the time
--   from which the first due item can be claimed; behind: number of a queue or an endpoint, and how many of
--   its items wait behind the head of their key; held: claimed and lapsed; settled: dead, and all items;
--   retried: the number of keys whose head has been retried for long, with items behind it, among the 1000
--   items whose next retry is latest.
--   The others are done.
-- Keeps: nothing; it only reads, all of it in one snapshot.
-- Relies on: the primary keys of tenure_ready, tenure_backlog and tenure_dead, each read once;
--   tenure_setbacks_retried, from its end, and the primary key of tenure_keys.
--   tenure_events is not read, because counting would read every payload: the number of events is the last
--   id, minus the ids pruned or drawn for a turn. Ids have no other gaps, because there is one writer and a
--   rollback returns them. A lease holds events or deliveries, never both: its first id shows which.

-- statement: queues
select name, number
from tenure_queues
order by name, topic;

-- statement: endpoints
select number
from tenure_endpoints
order by number;

-- statement: waiting
select
    count(*) filter (where available_at <= :now) as due,
    count(*) filter (where available_at > :now) as delayed,
    min(available_at) filter (where available_at <= :now) as oldest
from tenure_ready
where lane >= :lane
    and lane < :next_lane;

-- statement: behind
select lane / 16 as queue, count(*) as behind
from tenure_backlog
group by lane / 16;

-- statement: held
select
    coalesce(sum(json_array_length(ids)), 0) as claimed,
    coalesce(sum(json_array_length(ids)) filter (where locked_until <= :now), 0) as lapsed
from tenure_leases
where (ids ->> 0 > 4503599627370496) = (:kind = 'delivery');

-- statement: settled
select
    (
        select count(*)
        from tenure_dead
        where (id > 4503599627370496) = (:kind = 'delivery')
    ) as dead,
    last_id - ids_without_item - iif(kind = 'delivery', 4503599627370496, 0) as total
from tenure_ids
where kind = :kind;

-- statement: retried
select count(*) as keys
from (
    select id
    from tenure_setbacks
    where failures > 1
    order by available_at desc
    limit 1000
) as retried
cross join tenure_events as event
cross join tenure_keys as key_row
where event.id = retried.id
    and event.source is null
    and key_row.ordering_key = event.ordering_key
    and key_row.head = retried.id
    and not key_row.is_blocked
    and not key_row.is_paused
    and key_row.state_since < :long
    and exists (
        select 1
        from tenure_backlog as behind
        where behind.ordering_key = key_row.ordering_key
    );
