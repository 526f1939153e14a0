-- page_done: the ids of a page of done items, newest first; find.sql reads the items.
-- Parameters: :after and :before (ids between these), :since (written at or after), :until (written
--   before), :topic, :queue, :endpoint (each null: all; the queue of a delivery is that of its event),
--   :limit.
-- Returns: id.
-- Keeps: nothing; it only reads. An item that is neither pending, claimed nor dead is done.
-- Relies on: the primary key of tenure_events, read backwards until the page is full; those of
--   tenure_ready, tenure_backlog and tenure_dead. The ids of all leases are read once; leases are few.

-- statement: page_done
select event.id
from tenure_events as event
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
    and event.id < :before
    and (:since is null or event.created_at >= :since)
    and (:until is null or event.created_at < :until)
    and (:endpoint is null or event.lane / 16 = :endpoint)
    and (:topic is null or event.topic = :topic)
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
order by event.id desc
limit :limit;
