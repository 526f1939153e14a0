-- add_queue: adds a queue, or changes the term of an existing one.
-- Parameters: $1 name, $2 term in ms (null: none of its own).
-- Returns: nothing.
-- Keeps: a queue's number never changes, so a lane always belongs to the same queue.
-- Relies on: tenure_queues_pkey.
insert into tenure_queues as q (name, term_ms)
values ($1, $2)
on conflict (name, topic) do update set term_ms = excluded.term_ms
