-- queues: all queues, and their separate topics.
-- Parameters: none.
-- Returns: name, number, term_ms, paused, topic (empty for the queue itself), max_retries, retry_base_ms,
--   retry_cap_ms; by name and topic.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_queues_pkey.
select name, number, term_ms, is_paused, topic, max_retries, retry_base_ms, retry_cap_ms
from tenure_queues
order by name, topic
