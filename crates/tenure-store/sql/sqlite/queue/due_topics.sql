-- due_topics: the queues and separate topics that have a due item and are not paused.
-- Parameters: :now.
-- Returns: queue, topic (empty: the topics of the queue that are not separate); by queue and topic. Items
--   behind the head of their key are not due.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key of tenure_ready, one row of each lane; the unique index on the names, read whole.

-- statement: due_topics
with recursive step(number) as (
    select 0
    union all
    select number + 1
    from step
    where number < 15
)
select q.name, q.topic
from tenure_queues q
where not q.is_paused
  and exists (
      select 1
      from step s
      where exists (
          select 1
          from tenure_ready r
          where r.lane = q.number * 16 + s.number and r.available_at <= :now
      )
  )
order by q.name, q.topic;
