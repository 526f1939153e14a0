-- add_endpoint: adds an endpoint, if its name is free. Every change of an endpoint also runs the
-- statement `moved`.
-- Parameters: :id, :settings, :sealed, :now.
-- Returns: the endpoint as endpoint.sql returns it, or no row: the name is taken; moved: nothing.
-- Keeps: no two endpoints get the same name, and a number is never reused for a queue or an endpoint.
-- Relies on: the primary key. Queues and endpoints are few, and their numbers are read.

-- statement: added
insert into tenure_endpoints (id, number, settings, sealed_secrets, state, state_since, created_at)
select :id, max(number) + 1, :settings, :sealed, 'enabled', :now, :now
from (
    select number from tenure_queues
    union all
    select number from tenure_endpoints
)
where true
on conflict (id) do nothing
returning id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
    health, version, created_at;

-- statement: moved
update tenure_endpoints_version
set
    version = version + 1,
    rules_version = rules_version + 1;
