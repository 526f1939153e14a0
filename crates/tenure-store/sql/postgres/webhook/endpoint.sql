-- endpoint: one endpoint, also a removed one.
-- Parameters: $1 id.
-- Returns: id, number, settings, sealed, state, why, words, since, health, version, created_at.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_endpoints_pkey.
select id, number, settings::text, sealed, state, why, words, since, health::text, version, created_at
from tenure_endpoints
where id = $1
