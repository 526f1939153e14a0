-- page_dead: the ids of a page of dead items, newest first; find.sql reads the items.
-- Parameters: :after and :before (ids between these), :since (written at or after), :until (written
--   before), :topic, :queue, :endpoint (each null: all; the queue of a delivery is that of its event),
--   :limit.
-- Returns: id.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_dead, read backwards until the page is full; that of tenure_events.

-- statement: page_dead
select dead.id
from tenure_dead as dead
where dead.id > :after
    and dead.id < :before
    and (
        (
            :since is null
            and :until is null
            and :topic is null
            and :queue is null
            and :endpoint is null
        )
        or exists (
            select 1
            from tenure_events as event
            where event.id = dead.id
                and (:since is null or event.created_at >= :since)
                and (:until is null or event.created_at < :until)
                and (:endpoint is null or event.lane / 16 = :endpoint)
                and (:topic is null or event.topic = :topic)
                and (
                    :queue is null
                    or coalesce(
                        (
                            select source.lane
                            from tenure_events as source
                            where source.id = event.source
                        ),
                        event.lane
                    ) / 16 in (select number from tenure_queues where name = :queue)
                )
        )
    )
order by dead.id desc
limit :limit;
