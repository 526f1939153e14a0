-- row_enqueue: the bulk insert that enqueue is compared with: one table, many rows.
-- Parameters: $1 topics, $2 payloads.
-- Returns: the ids.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_row (topic, payload)
select topic, payload::json
from unnest($1::text[], $2::text[]) as n(topic, payload)
returning id
