-- sources: the events of deliveries, each once, even if it has several deliveries.
-- Parameters: $1 ids of events, each once.
-- Returns: id, event_id, topic, ordering_key, lane, payload, headers, encoding; in any order.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey.
select e.id, e.event_id, e.topic, e.ordering_key, e.lane, e.payload, e.headers, e.encoding
from unnest($1::bigint[]) as a(id)
cross join lateral (select * from tenure_events e where e.id = a.id offset 0) e
