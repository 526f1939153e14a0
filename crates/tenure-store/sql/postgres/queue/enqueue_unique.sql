-- enqueue_unique: writes the events whose dedupe key does not exist yet, all or none.
-- Parameters: $1 now, $2 event ids, $3 topics, $4 lanes, $5 payloads, $6 headers, $7 encodings, $8 delays
--   in microseconds, $9 ordering keys (null: none), $10 dedupe keys (null: none; each at most once).
-- Returns: per event: event_id, the id drawn for it, dedupe_key; and per dedupe key: the id of the event
--   that has it, and the key.
-- Keeps: laws 7, 8. The upsert also returns an id that this snapshot cannot see yet; keys are inserted in
--   sorted order, so that two producers cannot deadlock.
-- Relies on: tenure_dedupe_pkey.
with asked as materialized (
    select nextval('tenure_event_id') as id, n.*
    from unnest($2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                $9::text[], $10::text[])
        as n(event_id, topic, lane, payload, headers, encoding, delay, ordering_key, dedupe_key)
), holder as (
    insert into tenure_dedupe as d (dedupe_key, id, created_at)
    select dedupe_key, id, coalesce($1::timestamptz, now())
    from asked
    where dedupe_key is not null
    order by dedupe_key
    on conflict (dedupe_key) do update set dedupe_key = excluded.dedupe_key
    returning d.dedupe_key, d.id
), fresh as (
    insert into tenure_events
        (id, event_id, topic, ordering_key, lane, payload, headers, encoding, created_at, available_at)
    select a.id, a.event_id, a.topic, a.ordering_key, a.lane, a.payload::json, a.headers::json, a.encoding,
           coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + a.delay * interval '1 us'
    from asked a
    where a.dedupe_key is null or a.id in (select h.id from holder h)
    returning id, ordering_key, lane, available_at
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
select a.event_id, a.id, a.dedupe_key, null::text as held_key
from asked a
union all
select null, h.id, null, h.dedupe_key
from holder h
