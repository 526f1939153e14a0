-- separate: gives topics lanes of their own, apart from the other topics of their queue, and moves events
-- into them.
-- Parameters: :name, :topic, :most, the maximum number of separate topics of a queue (added); :strays, a JSON
--   array of [id, lane, available_at] (lanes, ready).
-- Returns: topics: queue, number and topic of each separate topic; by queue and topic.
-- Keeps: laws 1, 7: an event is removed from ready before it gets a new lane (claim.sql, taken_some). A
--   number is given once, so a lane always belongs to the same topic of the same queue.
-- Relies on: the primary keys; the unique index on the names.

-- statement: added
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

-- statement: lanes
insert into tenure_setbacks (id, lane, available_at)
select value ->> 0, value ->> 1, value ->> 2
from json_each(:strays)
where true
on conflict (id) do update set
    lane = excluded.lane,
    available_at = excluded.available_at;

-- statement: ready
insert into tenure_ready (lane, available_at, id)
select value ->> 1, value ->> 2, value ->> 0
from json_each(:strays);

-- statement: topics
select name, number, topic
from tenure_queues
where topic <> ''
order by name, topic;
