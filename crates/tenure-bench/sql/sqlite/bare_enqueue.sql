-- bare_enqueue: the first half of the bare two-table insert that enqueue is compared with.
-- Parameters: ?1 topic, ?2 payload, ?3 now.
-- Returns: the id, for `bare_ready`.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_event (topic, payload, created_at)
values (?1, ?2, ?3)
returning id
