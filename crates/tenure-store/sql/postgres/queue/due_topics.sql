-- due_topics: the queues and separate topics that have a due item and are not paused.
-- Parameters: $1 now.
-- Returns: queue, topic (empty: the topics of the queue that are not separate); by queue and topic. Items
--   behind the head of their key are not due.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_ready_pkey, one row of each lane; tenure_queues_pkey, read whole.
select q.name, q.topic
from tenure_queues q
where not q.is_paused
  and exists (
      select
      from generate_series(0, 15) as step
      cross join lateral (
          select r.lane
          from tenure_ready r
          where r.lane = q.number * 16 + step
            and r.available_at <= coalesce($1::timestamptz, statement_timestamp())
          order by r.available_at
          limit 1
      ) as r
  )
order by q.name, q.topic
