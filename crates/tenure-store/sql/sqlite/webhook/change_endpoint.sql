-- change_endpoint: replaces an endpoint, if its version has not changed. The statement `moved` of
-- add_endpoint.sql records the change.
-- Parameters: :now, :id, :version that the caller has read, :settings, :sealed, :state, :why, the cause of
--   its disabled state, :words, the operator's note.
-- Returns: the endpoint as endpoint.sql returns it, or no row: it does not exist, or its version has
--   changed.
-- Keeps: of two changes that have read the same version one takes effect. A removed endpoint stays removed.
--   Enabling an endpoint resets its health.
-- Relies on: the primary key.

-- statement: changed
update tenure_endpoints
set
    settings = :settings,
    sealed_secrets = :sealed,
    version = version + 1,
    state = iif(state = 'removed', state, :state),
    disabled_cause = iif(state = 'removed', disabled_cause, :why),
    disabled_note = iif(state = 'removed', disabled_note, :words),
    state_since = iif(state in ('removed', :state), state_since, :now),
    health = iif(state = 'disabled' and :state = 'enabled', '{}', health)
where id = :id
    and version = :version
returning id, number, settings, sealed_secrets, state, disabled_cause, disabled_note, state_since,
    health, version, created_at;
