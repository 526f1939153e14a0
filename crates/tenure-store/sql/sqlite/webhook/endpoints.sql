-- endpoints: endpoints in the order of their names, also removed ones.
-- Parameters: :after, behind this id (null: from the first), :limit.
-- Returns: the columns of endpoint.sql.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key.

-- statement: endpoints
select id, number, settings, sealed, state, why, words, since, health, version, created_at
from tenure_endpoints
where id > coalesce(:after, '')
order by id
limit :limit;
