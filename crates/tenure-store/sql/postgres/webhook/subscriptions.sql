-- subscriptions: the enabled endpoints, and the version of their rules.
-- Parameters: none.
-- Returns: rules_version in each row; per enabled endpoint (or one row of nulls): id, number, settings.
-- Keeps: nothing; it only reads, in one snapshot.
-- Relies on: tenure_endpoints_version_pkey; tenure_endpoints_pkey, read whole, once per change.
select v.rules_version, e.id, e.number, e.settings::text
from tenure_endpoints_version v
left join tenure_endpoints e on e.state = 'enabled'
where v.singleton = 1
order by e.id
