-- keep_health: writes down how an endpoint fares. What is owed to whom stays as it is.
-- Parameters: $1 id, $2 health.
-- Returns: nothing.
-- Keeps: the endpoint's own version: a change that was begun before can still be made.
-- Relies on: tenure_endpoints_pkey, tenure_endpoints_version_pkey.
with kept as (
    update tenure_endpoints
    set health = $2::json
    where id = $1
    returning 1
)
update tenure_endpoints_version
set version = version + 1
where one = 1 and exists (select from kept)
