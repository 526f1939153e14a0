-- find: everything that is known of items.
-- Parameters: $1 ids.
-- Returns: the rows of the view, without order.
-- Keeps: nothing; it only reads, and it reads no token.
-- Relies on: the primary keys; tenure_settled_span for published_at. Leases are few and are scanned.
select id, event_id, topic, ordering_key, queue, priority, payload, headers, encoding, status,
       created_at, available_at, claimed_at, claimed_by, locked_until, fence, attempts, failures,
       crashes, last_error, published_at, dead_at, dead_reason, generation
from tenure_outbox
where id = any ($1::bigint[])
