-- add_queue: adds a queue, or changes the rules of an existing one.
-- Parameters: $1 name, $2 term in ms, $3 maximum number of retries, $4 and $5 base and cap of the
--   delays before them in ms (null: none of its own).
-- Returns: nothing.
-- Keeps: a queue's number never changes, so a lane always belongs to the same queue.
-- Relies on: tenure_queues_pkey.
insert into tenure_queues as q (name, term_ms, max_retries, retry_base_ms, retry_cap_ms)
values ($1, $2, $3, $4, $5)
on conflict (name, topic) do update
set term_ms = excluded.term_ms, max_retries = excluded.max_retries,
    retry_base_ms = excluded.retry_base_ms, retry_cap_ms = excluded.retry_cap_ms
