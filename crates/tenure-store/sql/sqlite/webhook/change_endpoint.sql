-- change_endpoint: changes an endpoint whole, if it is still as it was seen. That it moved is noted by
--   add_endpoint.sql.
-- Parameters: :now, :id, :version that the caller has seen, :settings, :sealed, :state, :why it is
--   disabled, :words of whoever did.
-- Returns: the endpoint as endpoint.sql does, or no row: there is none, or its version is another.
-- Keeps: of two changes that have seen the same version one takes effect. A removed one stays removed.
--   One that is enabled again has a clean slate.
-- Relies on: the primary key.

-- statement: changed
update tenure_endpoints
set
    settings = :settings,
    sealed = :sealed,
    version = version + 1,
    state = iif(state = 'removed', state, :state),
    why = iif(state = 'removed', why, :why),
    words = iif(state = 'removed', words, :words),
    since = iif(state in ('removed', :state), since, :now),
    health = iif(state = 'disabled' and :state = 'enabled', '{}', health)
where id = :id
    and version = :version
returning id, number, settings, sealed, state, why, words, since, health, version, created_at;
