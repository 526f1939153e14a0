-- endpoints: endpoints by name, including removed ones.
-- Parameters: :after this id (null: from the first), :limit.
-- Returns: the columns of endpoint.sql.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key.

-- statement: endpoints
select id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
    health, version, created_at
from tenure_endpoints
where id > coalesce(:after, '')
order by id
limit :limit;
