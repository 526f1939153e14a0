-- settings: what is set for all processes, and of which version that is.
-- Parameters: none.
-- Returns: version, name, value; by name. One row with nulls when nothing is set.
-- Keeps: nothing; it only reads.
-- Relies on: the primary keys of tenure_settings_version and tenure_settings, this one read whole.

-- statement: settings
select latest.version, setting.name, setting.value
from tenure_settings_version as latest
left join tenure_settings as setting
    on true
where latest.one = 1
order by setting.name;
