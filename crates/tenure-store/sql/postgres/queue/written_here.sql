-- written_here: the events that the caller's open transaction has written, oldest first.
-- Parameters: none.
-- Returns: event_id, topic, ordering_key, queue, priority, payload, headers, encoding.
-- Keeps: nothing; it only reads.
-- Relies on: created_at is the start of the transaction that wrote the event. For tests: it reads the whole view.
select o.event_id, o.topic, o.ordering_key, o.queue, o.priority::int, o.payload::text, o.headers::text, o.encoding
from tenure_outbox o
where o.created_at = now()
order by o.id
