-- keep_health: writes down how an endpoint fares. What is owed to whom stays as it is.
-- Parameters: :id, :health.
-- Returns: nothing.
-- Keeps: the endpoint's own version: a change that was begun before can still be made.
-- Relies on: the primary keys.

-- statement: kept
update tenure_endpoints
set health = :health
where id = :id;

-- statement: moved
update tenure_endpoints_version
set version = version + 1;
