-- written_here: the events that a connection sees, oldest first.
-- Parameters: none.
-- Returns: events: event_id, topic, ordering_key, queue, priority, payload, headers, encoding.
-- Keeps: nothing; it only reads.
-- Relies on: nothing. For tests: it reads the whole view.

-- statement: events
select event_id, topic, ordering_key, queue, priority, payload, headers, encoding
from tenure_outbox
order by id
