-- change_endpoint: replaces an endpoint, if its version has not changed.
-- Parameters: $1 now, $2 id, $3 the version that the caller has read, $4 settings, $5 sealed, $6 state, $7
--   cause of its disabled state, $8 the operator's note.
-- Returns: the endpoint as endpoint.sql returns it, or no row: it does not exist, or its version has
--   changed.
-- Keeps: of two changes that have read the same version one takes effect: the second waits for the first,
--   and then no longer finds its version. A removed endpoint stays removed. Enabling an endpoint resets its
--   health.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with changed as (
    update tenure_endpoints
    set settings = $4::json, sealed_secrets = $5, version = version + 1,
        state = case when state = 'removed' then state else $6::text end,
        disabled_cause = case when state = 'removed' then disabled_cause else $7::text end,
        disabled_note = case when state = 'removed' then disabled_note else $8::text end,
        state_since = case when state in ('removed', $6::text) then state_since
                           else coalesce($1::timestamptz, statement_timestamp()) end,
        health = case when state = 'disabled' and $6::text = 'enabled' then '{}' else health end
    where id = $2 and version = $3
    returning id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
              health, version, created_at
), moved as (
    update tenure_endpoints_version
    set version = version + 1, rules_version = rules_version + 1
    where singleton = 1 and exists (select from changed)
)
select id, number, settings::text, sealed_secrets, state, disabled_cause, disabled_note, state_since,
       health::text, version, created_at
from changed
