-- enqueue: writes events and their rows in ready or in the backlog, all or none.
-- Parameters: $1 now, $2 event ids, $3 topics, $4 lanes, $5 payloads, $6 headers, $7 encodings, $8 delays
--   in microseconds, $9 ordering keys (null: none).
-- Returns: event_id, id.
-- Keeps: laws 7, 8; it runs in the caller's transaction or in its own. It takes no lock on a key: an
--   item with a key goes into the backlog, its key gets an arrival, and the next claim promotes a head.
-- Relies on: nothing; it only inserts.
with fresh as (
    insert into tenure_events
        (event_id, topic, ordering_key, lane, payload, headers, encoding, created_at, available_at)
    select n.event_id, n.topic, n.ordering_key, n.lane, n.payload::json, n.headers::json, n.encoding,
           coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + n.delay * interval '1 us'
    from unnest($2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                $9::text[])
        as n(event_id, topic, lane, payload, headers, encoding, delay, ordering_key)
    returning id, event_id, ordering_key, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id
    from fresh
    where ordering_key is null
), backlog as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(ordering_key), id, id, lane, available_at
    from fresh
    where ordering_key is not null
), arrival as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select tenure_key_hash(ordering_key), ordering_key
    from fresh
    where ordering_key is not null
    group by ordering_key
)
select event_id, id
from fresh
