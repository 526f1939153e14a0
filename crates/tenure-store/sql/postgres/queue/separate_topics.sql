-- separate_topics: the topics that have lanes of their own, with their waiting items.
-- Parameters: $1 now.
-- Returns: queue, topic, due, delayed, the waiting time of the oldest due item in microseconds; by queue and
--   topic. Items behind the head of their key are not counted.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_ready_pkey; tenure_queues_pkey, read whole.
select q.name, q.topic, w.due, w.delayed, w.oldest_due
from tenure_queues q
cross join lateral (
    select count(*) filter (where r.available_at <= coalesce($1::timestamptz, statement_timestamp())) as due,
           count(*) filter (where r.available_at > coalesce($1::timestamptz, statement_timestamp())) as delayed,
           (extract(epoch from coalesce($1::timestamptz, statement_timestamp()) - min(r.available_at) filter (
               where r.available_at <= coalesce($1::timestamptz, statement_timestamp()))) * 1000000)::bigint as oldest_due
    from tenure_ready r
    where r.lane >= q.number * 16 and r.lane < q.number * 16 + 16
) as w
where q.topic <> ''
order by q.name, q.topic
