-- bare_enqueue: the bare two-table insert that enqueue is compared with.
-- Parameters: $1 topics, $2 payloads.
-- Returns: the ids.
-- Keeps: nothing.
-- Relies on: nothing.
with fresh as (
    insert into bench_event (topic, payload)
    select topic, payload::json
    from unnest($1::text[], $2::text[]) as n(topic, payload)
    returning id, available_at
), ready as (
    insert into bench_ready (lane, available_at, id)
    select 0, available_at, id
    from fresh
)
select id
from fresh
