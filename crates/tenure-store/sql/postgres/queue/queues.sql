-- queues: all queues, and their separate topics.
-- Parameters: none.
-- Returns: name, number, term_ms, paused, topic (empty for the queue itself); by name and topic.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_queues_pkey.
select name, number, term_ms, is_paused, topic
from tenure_queues
order by name, topic
