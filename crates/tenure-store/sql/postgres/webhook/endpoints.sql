-- endpoints: endpoints by name, including removed ones.
-- Parameters: $1 after this id (null: from the first), $2 limit.
-- Returns: the columns of endpoint.sql.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_endpoints_pkey.
select id, number, settings::text, sealed_secrets, state, disabled_cause, disabled_note, state_since,
       health::text, version, created_at
from tenure_endpoints
where id > coalesce($1::text, '')
order by id
limit $2
