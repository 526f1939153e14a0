-- count: how many items stand where.
-- Parameters: :now; :lane and :next_lane, where the lanes of a queue or an endpoint begin and end;
--   :kind, event or delivery.
-- Returns: queues: name and number; endpoints: number; waiting, for one of them: due, delayed, and the
--   moment from which the first due item may be claimed; behind: number of a queue or an endpoint and
--   how many of it wait behind the head of their domain; held: claimed and lapsed; settled: dead, and
--   all items, of which those that are in no place are done.
-- Keeps: nothing; it only reads, all of it in one snapshot.
-- Relies on: the primary keys of tenure_ready, tenure_backlog and tenure_dead, each read once.
--   tenure_events is not read: the last id, less what was pruned or drawn for a turn, is their number.
--   Ids have no other gaps, since there is one writer and a rollback takes them back; to count would
--   read every payload. A lease holds events or deliveries, never both: its first id tells which.

-- statement: queues
select name, number
from tenure_queues
order by name;

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
    last_id - vacant - iif(kind = 'delivery', 4503599627370496, 0) as total
from tenure_ids
where kind = :kind;
