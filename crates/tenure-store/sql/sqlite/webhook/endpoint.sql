-- endpoint: one endpoint, also a removed one.
-- Parameters: :id.
-- Returns: id, number, settings, sealed, state, why, words, since, health, version, created_at.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key.

-- statement: endpoint
select id, number, settings, sealed, state, why, words, since, health, version, created_at
from tenure_endpoints
where id = :id;
