-- enqueue: writes events and their places, all or none.
-- Parameters: $1 now, $2 event ids, $3 topics, $4 lanes, $5 payloads, $6 headers, $7 encodings,
--   $8 delays in us.
-- Returns: event_id, id.
-- Keeps: law 8; runs in the caller's transaction as well as in its own.
-- Relies on: nothing; it only inserts.
with fresh as (
    insert into tenure_events
        (event_id, topic, lane, payload, headers, encoding, created_at, available_at)
    select n.event_id, n.topic, n.lane, n.payload::json, n.headers::json, n.encoding,
           coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + n.delay * interval '1 us'
    from unnest($2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[])
        as n(event_id, topic, lane, payload, headers, encoding, delay)
    returning id, event_id, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id
    from fresh
)
select event_id, id
from fresh
