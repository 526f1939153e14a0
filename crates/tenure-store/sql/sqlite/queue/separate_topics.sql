-- separate_topics: the topics that have lanes of their own.
-- Parameters: none.
-- Returns: queue, number, topic; by queue and topic.
-- Keeps: nothing; it only reads.
-- Relies on: the unique index on the names, read whole.

-- statement: separate_topics
select name, number, topic
from tenure_queues
where topic <> ''
order by name, topic;
