-- row_insert: the insert that enqueue is compared with: one table.
-- Parameters: ?1 topic, ?2 payload, ?3 now.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_row (topic, payload, created_at, available_at)
values (?1, ?2, ?3, ?3)
