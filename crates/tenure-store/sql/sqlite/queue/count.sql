-- count: how many items stand where.
-- Parameters: :now; :lane and :next_lane, where the lanes of a queue begin and end.
-- Returns: queues: name and number; waiting, for one queue: due, delayed, and the moment from which
--   the first due item may be claimed; behind: number of a queue and how many of it wait behind the
--   head of their domain; held: claimed and lapsed; settled: dead, and all items, of which those that
--   are in no place are done.
-- Keeps: nothing; it only reads, all of it in one snapshot.
-- Relies on: the primary keys of tenure_ready, tenure_backlog and tenure_dead, each read once.
--   tenure_events is not read: its last id, less what was pruned or drawn for a turn, is their number.
--   Ids have no other gaps, since there is one writer and a rollback takes them back; to count would
--   read every payload.

-- statement: queues
select name, number
from tenure_queues
order by name;

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
from tenure_leases;

-- statement: settled
select
    (select count(*) from tenure_dead) as dead,
    coalesce((select seq from sqlite_sequence where name = 'tenure_events'), 0)
        - (select items from tenure_pruned) as total;
