-- queues: all queues.
-- Parameters: none.
-- Returns: name, number, term_ms, paused; by name.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_queues_pkey.
select name, number, term_ms, is_paused
from tenure_queues
order by name
