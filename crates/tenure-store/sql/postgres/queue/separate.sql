-- separate: gives topics lanes of their own, apart from the other topics of their queues.
-- Parameters: $1 queue numbers, $2 topics, $3 the maximum number of separate topics of a queue.
-- Returns: nothing.
-- Keeps: a number is given once, so a lane always belongs to the same topic of the same queue.
-- Relies on: tenure_queues_pkey and the unique index on the numbers.
insert into tenure_queues (name, topic, is_paused)
select q.name, t.topic, q.is_paused
from unnest($1::int[], $2::text[]) as t(number, topic)
join tenure_queues q on q.number = t.number
where (select count(*) from tenure_queues s where s.name = q.name) <= $3::bigint
order by q.name, t.topic
on conflict (name, topic) do nothing
