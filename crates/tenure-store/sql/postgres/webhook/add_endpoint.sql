-- add_endpoint: adds an endpoint, if its name is free.
-- Parameters: $1 now, $2 id, $3 settings, $4 sealed.
-- Returns: the endpoint as endpoint.sql does, or no row: the name is taken.
-- Keeps: a name is given once, and a number is never given twice. Whoever changes endpoints takes the
--   endpoint first and the version's row last, so that two cannot wait for each other crosswise.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with added as (
    insert into tenure_endpoints (id, settings, sealed, state, since, created_at)
    values ($2, $3::json, $4, 'enabled', coalesce($1::timestamptz, now()),
            coalesce($1::timestamptz, now()))
    on conflict (id) do nothing
    returning id, number, settings, sealed, state, why, words, since, health, version, created_at
), moved as (
    update tenure_endpoints_version
    set version = version + 1, rules = rules + 1
    where one = 1 and exists (select from added)
)
select id, number, settings::text, sealed, state, why, words, since, health::text, version, created_at
from added
