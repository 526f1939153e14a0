-- row_insert: the single insert that enqueue one by one is compared with.
-- Parameters: $1 topic, $2 payload.
-- Returns: the id.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_row (topic, payload)
values ($1, $2::json)
returning id
