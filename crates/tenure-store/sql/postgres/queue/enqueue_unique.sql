-- enqueue_unique: writes those of the events whose dedupe key is not taken, all or none.
-- Parameters: $1 now, $2 event ids, $3 topics, $4 lanes, $5 payloads, $6 headers, $7 encodings,
--   $8 delays in us, $9 ordering keys (null: none), $10 dedupe keys (null: none; each at most once).
-- Returns: event_id and id of what was asked, and the id that holds the key (its own if it won).
-- Keeps: laws 7, 8. The upsert also answers with a winner that this snapshot cannot see yet; keys are
--   taken in their order, so that two producers cannot wait for each other crosswise.
-- Relies on: tenure_dedupe_pkey.
with asked as materialized (
    select nextval('tenure_event_id') as id, n.*
    from unnest($2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                $9::text[], $10::text[])
        as n(event_id, topic, lane, payload, headers, encoding, delay, ordering_key, key)
), holder as (
    insert into tenure_dedupe as d (key, id, created_at)
    select key, id, coalesce($1::timestamptz, now())
    from asked
    where key is not null
    order by key
    on conflict (key) do update set key = excluded.key
    returning d.key, d.id
), fresh as (
    insert into tenure_events
        (id, event_id, topic, ordering_key, lane, payload, headers, encoding, created_at, available_at)
    select a.id, a.event_id, a.topic, a.ordering_key, a.lane, a.payload::json, a.headers::json, a.encoding,
           coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + a.delay * interval '1 us'
    from asked a
    where a.key is null or a.id in (select h.id from holder h)
    returning id, ordering_key, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id
    from fresh
    where ordering_key is null
), backlog as (
    insert into tenure_backlog (domain, turn, id, lane, available_at)
    select tenure_domain(ordering_key), id, id, lane, available_at
    from fresh
    where ordering_key is not null
), arrival as (
    insert into tenure_arrivals (domain, ordering_key)
    select tenure_domain(ordering_key), ordering_key
    from fresh
    where ordering_key is not null
    group by ordering_key
)
select a.event_id, a.id, a.key, null::text as held_key
from asked a
union all
select null, h.id, null, h.key
from holder h
