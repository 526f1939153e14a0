-- keep_health: saves the health of an endpoint. Subscriptions do not change.
-- Parameters: :id, :health.
-- Returns: nothing.
-- Keeps: the version of the endpoint: a concurrent change of its settings can still succeed.
-- Relies on: the primary keys.

-- statement: kept
update tenure_endpoints
set health = :health
where id = :id;

-- statement: moved
update tenure_endpoints_version
set version = version + 1;
