-- settings: what is set for all processes, and of which version that is.
-- Parameters: none.
-- Returns: version, name, value; by name, in one snapshot. One row with nulls when nothing is set.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_settings_version_pkey; tenure_settings_pkey, read whole.
select v.version, s.name, s.value
from tenure_settings_version v
left join tenure_settings s on true
where v.one = 1
order by s.name
