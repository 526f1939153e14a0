-- replay_dead: the next dead items of a bulk replay.
-- Parameters: :after this id and up to :last; bound: :walk, the maximum number of items to examine; the
--   page: :since (written at or after), :until (written before), :topic, :queue, :key, :endpoint, :source,
--   the event of a delivery (each null: all; the queue of a delivery is that of its event), :limit.
-- Returns: bound: the last id to examine, if that is not :last; the page: ids, ascending.
-- Keeps: nothing; it only reads.
-- Relies on: the primary keys of tenure_dead and tenure_events. It reads at most the given number of rows,
--   even if few match.

-- statement: bound
select dead.id
from tenure_dead as dead
where dead.id > :after
    and dead.id <= :last
order by dead.id
limit 1 offset :walk;

-- statement: page
select dead.id
from tenure_dead as dead
cross join tenure_events as event
    on event.id = dead.id
where dead.id > :after
    and dead.id <= :last
    and (:since is null or event.created_at >= :since)
    and (:until is null or event.created_at < :until)
    and (:endpoint is null or event.lane / 16 = :endpoint)
    and (:source is null or event.source = :source)
    and (:topic is null or event.topic = :topic)
    and (:key is null or event.ordering_key = :key)
    and (
        :queue is null
        or coalesce(
            (select source.lane from tenure_events as source where source.id = event.source),
            event.lane
        ) / 16 in (select number from tenure_queues where name = :queue)
    )
order by dead.id
limit :limit;
