-- add_endpoint: adds an endpoint, if its name is free. Whoever changes an endpoint notes it by moved.
-- Parameters: :id, :settings, :sealed, :now.
-- Returns: the endpoint as endpoint.sql does, or no row: the name is taken; moved: nothing.
-- Keeps: a name is given once, and a number is never given twice, to a queue or an endpoint.
-- Relies on: the primary key. Queues and endpoints are few, and their numbers are read.

-- statement: added
insert into tenure_endpoints (id, number, settings, sealed, state, since, created_at)
select :id, max(number) + 1, :settings, :sealed, 'enabled', :now, :now
from (
    select number from tenure_queues
    union all
    select number from tenure_endpoints
)
where true
on conflict (id) do nothing
returning id, number, settings, sealed, state, why, words, since, health, version, created_at;

-- statement: moved
update tenure_endpoints_version
set
    version = version + 1,
    rules = rules + 1;
