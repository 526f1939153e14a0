-- separate: gives a topic lanes of its own, apart from the other topics of its queue.
-- Parameters: :name, :topic, :most, the maximum number of separate topics of a queue.
-- Returns: nothing.
-- Keeps: a number is given once, so a lane always belongs to the same topic of the same queue.
-- Relies on: the unique index on the names.

-- statement: separate
insert into tenure_queues (number, name, topic, is_paused)
select
    (
        select max(number) + 1
        from (
            select number from tenure_queues
            union all
            select number from tenure_endpoints
        )
    ),
    queue.name,
    :topic,
    queue.is_paused
from tenure_queues as queue
where queue.name = :name
    and queue.topic = ''
    and (select count(*) from tenure_queues where name = :name) <= :most
on conflict (name, topic) do nothing;
