-- page_pending: the ids of a page of items that wait, newest first; find.sql fills it.
-- Parameters: :before (ids below this one), :since (written at or after), :topic, :queue (each
--   null: all), :limit.
-- Returns: id.
-- Keeps: nothing; it only reads.
-- Relies on: no index: tenure_ready is read once. It is narrow, and its length is what waits; to
--   walk the events instead would read all that is done.

-- statement: page_pending
select ready.id
from tenure_ready as ready
where ready.id < :before
    and (
        (:since is null and :topic is null and :queue is null)
        or exists (
            select 1
            from tenure_events as event
            where event.id = ready.id
                and (:since is null or event.created_at >= :since)
                and (:topic is null or event.topic = :topic)
                and (
                    :queue is null
                    or event.lane / 16 = (select number from tenure_queues where name = :queue)
                )
        )
    )
order by ready.id desc
limit :limit;
