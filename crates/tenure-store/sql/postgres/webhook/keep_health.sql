-- keep_health: saves the health of an endpoint. Subscriptions do not change.
-- Parameters: $1 id, $2 health.
-- Returns: nothing.
-- Keeps: the version of the endpoint: a concurrent change of its settings can still succeed.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with kept as (
    update tenure_endpoints
    set health = $2::json
    where id = $1
    returning 1
)
update tenure_endpoints_version
set version = version + 1
where singleton = 1 and exists (select from kept)
