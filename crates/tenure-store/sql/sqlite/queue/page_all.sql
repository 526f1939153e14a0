-- page_all: the ids of a page of items, newest first; find.sql fills it.
-- Parameters: :before (ids below this one), :since (written at or after), :topic, :queue (each
--   null: all), :limit.
-- Returns: id.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_events, read backwards until the page is full.

-- statement: page_all
select event.id
from tenure_events as event
where event.id < :before
    and (:since is null or event.created_at >= :since)
    and (:topic is null or event.topic = :topic)
    and (
        :queue is null
        or event.lane / 16 = (select number from tenure_queues where name = :queue)
    )
order by event.id desc
limit :limit;
