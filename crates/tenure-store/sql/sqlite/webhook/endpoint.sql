-- endpoint: one endpoint, even if it was removed.
-- Parameters: :id.
-- Returns: id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since, health,
--   version, created_at.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key.

-- statement: endpoint
select id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
    health, version, created_at
from tenure_endpoints
where id = :id;
