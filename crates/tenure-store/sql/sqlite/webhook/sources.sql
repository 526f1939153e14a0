-- sources: the events of deliveries, each once, even if it has several deliveries.
-- Parameters: :ids of events as a JSON array.
-- Returns: id, and the event with the name of its queue; in any order.
-- Keeps: nothing; it only reads.
-- Relies on: the primary keys.

-- statement: sources
select
    event.id,
    event.available_at,
    event.lane,
    event.event_id,
    event.topic,
    event.ordering_key,
    event.encoding,
    event.headers,
    event.payload,
    queue.name as queue
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_queues as queue
    on queue.number = event.lane / 16;
