-- add_queue: adds a queue, or changes the rules of an existing one.
-- Parameters: :name, :term_ms, :max_retries, :retry_base_ms, :retry_cap_ms (null: that of the worker).
-- Returns: nothing.
-- Keeps: a number is given once, to a queue or an endpoint, so no two share a lane.
-- Relies on: the unique index on the names.

-- statement: add_queue
insert into tenure_queues (number, name, term_ms, max_retries, retry_base_ms, retry_cap_ms)
select max(number) + 1, :name, :term_ms, :max_retries, :retry_base_ms, :retry_cap_ms
from (
    select number from tenure_queues
    union all
    select number from tenure_endpoints
)
where true
on conflict (name, topic) do update set
    term_ms = excluded.term_ms,
    max_retries = excluded.max_retries,
    retry_base_ms = excluded.retry_base_ms,
    retry_cap_ms = excluded.retry_cap_ms;
