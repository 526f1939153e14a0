-- change_endpoint: changes an endpoint whole, if it is still as it was seen.
-- Parameters: $1 now, $2 id, $3 the version that the caller has seen, $4 settings, $5 sealed, $6 state,
--   $7 why it is disabled, $8 the words of whoever did.
-- Returns: the endpoint as endpoint.sql does, or no row: there is none, or its version is another.
-- Keeps: of two changes that have seen the same version one takes effect: the second waits for the first,
--   and then no longer finds the version that it asked for. A removed one stays removed. One that is
--   enabled again has a clean slate.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with changed as (
    update tenure_endpoints
    set settings = $4::json, sealed = $5, version = version + 1,
        state = case when state = 'removed' then state else $6::text end,
        why = case when state = 'removed' then why else $7::text end,
        words = case when state = 'removed' then words else $8::text end,
        since = case when state in ('removed', $6::text) then since else coalesce($1::timestamptz, now()) end,
        health = case when state = 'disabled' and $6::text = 'enabled' then '{}' else health end
    where id = $2 and version = $3
    returning id, number, settings, sealed, state, why, words, since, health, version, created_at
), moved as (
    update tenure_endpoints_version
    set version = version + 1, rules = rules + 1
    where one = 1 and exists (select from changed)
)
select id, number, settings::text, sealed, state, why, words, since, health::text, version, created_at
from changed
