-- bare_ready: the second half of the bare two-table insert.
-- Parameters: ?1 now, ?2 id.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_ready (lane, available_at, id)
values (0, ?1, ?2)
