-- endpoint: one endpoint, even if it was removed.
-- Parameters: $1 id.
-- Returns: id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since, health,
--   version, created_at.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_endpoints_pkey.
select id, number, settings::text, sealed_secrets, state, disabled_cause, disabled_note, state_since,
       health::text, version, created_at
from tenure_endpoints
where id = $1
