-- add_endpoint: adds an endpoint, if its name is free.
-- Parameters: $1 now, $2 id, $3 settings, $4 sealed.
-- Returns: the endpoint as endpoint.sql returns it, or no row: the name is taken.
-- Keeps: no two endpoints get the same name, and a number is never reused. Every change of endpoints locks
--   the endpoint first and the version's row last, so that two changes cannot deadlock.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with added as (
    insert into tenure_endpoints (id, settings, sealed_secrets, state, state_since, created_at)
    values ($2, $3::json, $4, 'enabled', coalesce($1::timestamptz, statement_timestamp()),
            coalesce($1::timestamptz, statement_timestamp()))
    on conflict (id) do nothing
    returning id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
              health, version, created_at
), moved as (
    update tenure_endpoints_version
    set version = version + 1, rules_version = rules_version + 1
    where singleton = 1 and exists (select from added)
)
select id, number, settings::text, sealed_secrets, state, disabled_cause, disabled_note, state_since,
       health::text, version, created_at
from added
