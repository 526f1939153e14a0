-- page_pending: the ids of a page of pending items, newest first; find.sql reads the items.
-- Parameters: :after and :before (ids between these), :since (written at or after), :until (written
--   before), :topic, :queue, :endpoint (each null: all; the queue of a delivery is that of its event),
--   :limit.
-- Returns: id.
-- Keeps: nothing; it only reads.
-- Relies on: no index: tenure_ready and tenure_backlog are read once. They are narrow and contain only
--   waiting items; reading the events instead would also read all that are done.

-- statement: page_pending
select waiting.id
from (
    select id from tenure_ready
    union all
    select id from tenure_backlog
) as waiting
where waiting.id > :after
    and waiting.id < :before
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
            where event.id = waiting.id
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
order by waiting.id desc
limit :limit;
