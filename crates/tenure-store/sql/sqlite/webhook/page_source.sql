-- page_source: the ids of a page of deliveries of an event, newest first; find.sql reads the items.
-- Parameters: :source, the event; :after and :before (ids between these), :since (written at or after),
--   :until (written before), :topic, :queue of the event, :endpoint, :key, :state (each null: all), :limit.
-- Returns: id.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_source: an event has no more deliveries than there are endpoints; the primary
--   keys of tenure_ready, tenure_backlog and tenure_dead. The ids of all leases are read once; leases are
--   few.

-- statement: page_source
select event.id
from tenure_events as event indexed by tenure_events_source
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
where event.source = :source
    and (:key is null or event.ordering_key = :key)
    and event.id > :after
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
    and (
        :state is null
        or :state = case
            when ready.id is not null or behind.id is not null then 'pending'
            when dead.id is not null then 'dead'
            when event.id in (
                select held.value
                from tenure_leases as lease, json_each(lease.ids) as held
            ) then 'claimed'
            else 'done'
        end
    )
order by event.id desc
limit :limit;
