-- queues: all queues, by name.
-- Parameters: none.
-- Returns: name, term_ms, paused, max_retries, retry_base_ms, retry_cap_ms.
-- Keeps: nothing; it only reads.
-- Relies on: the unique index on the names.

-- statement: queues
select name, term_ms, is_paused, max_retries, retry_base_ms, retry_cap_ms
from tenure_queues
where topic = ''
order by name;
