-- settings: the settings of the cluster, and their version.
-- Parameters: none.
-- Returns: version, name, value; by name. One row with nulls if nothing is set.
-- Keeps: nothing; it only reads.
-- Relies on: the primary keys of tenure_settings_version and tenure_settings; the latter is read whole.

-- statement: settings
select latest.version, setting.name, setting.value
from tenure_settings_version as latest
left join tenure_settings as setting
    on true
where latest.singleton = 1
order by setting.name;
