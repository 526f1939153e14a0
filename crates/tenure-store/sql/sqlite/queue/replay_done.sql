-- replay_done: the next done items of a bulk replay.
-- Parameters: :after this id and up to :last; bound: :walk, the maximum number of items to examine; the
--   page: :since (written at or after), :until (written before), :topic, :queue, :key, :endpoint, :source,
--   the event of a delivery (each null: all; the queue of a delivery is that of its event), :limit.
-- Returns: bound: the last id to examine, if that is not :last; the page: ids, ascending.
-- Keeps: nothing; it only reads. An item that is neither pending, claimed nor dead is done.
-- Relies on: the primary keys of tenure_events, tenure_ready, tenure_backlog and tenure_dead. It reads at
--   most the given number of rows, even if few match. The ids of all leases are read once; leases are few.

-- statement: bound
select event.id
from tenure_events as event
where event.id > :after
    and event.id <= :last
order by event.id
limit 1 offset :walk;

-- statement: page
select event.id
from tenure_events as event not indexed
left join tenure_setbacks as setback
    on setback.id = event.id
left join tenure_ready as ready
    on ready.lane = coalesce(setback.lane, event.lane)
    and ready.available_at = coalesce(setback.available_at, event.available_at)
    and ready.id = event.id
left join tenure_backlog as behind
    on behind.ordering_key = event.ordering_key
    and behind.turn = coalesce(setback.turn, event.id)
left join tenure_dead as dead
    on dead.id = event.id
where event.id > :after
    and event.id <= :last
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
    and ready.id is null
    and behind.id is null
    and dead.id is null
    and event.id not in (
        select held.value
        from tenure_leases as lease, json_each(lease.ids) as held
    )
order by event.id
limit :limit;
