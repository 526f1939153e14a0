-- settings: the settings of the cluster, and their version.
-- Parameters: none.
-- Returns: version, name, value; by name, in one snapshot. One row with nulls if nothing is set.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_settings_version_pkey; tenure_settings_pkey, read whole.
select v.version, s.name, s.value
from tenure_settings_version v
left join tenure_settings s on true
where v.singleton = 1
order by s.name
