-- change_settings: changes the settings of the cluster, all of them or none.
-- Parameters: :version that the caller has read; :change, a JSON array of [name, value], each name once; a
--   null value removes the setting.
-- Returns: moved: the new version, or no row if the version has changed; then the other statements must not
--   run.
-- Keeps: of two changes that have read the same version one takes effect.
-- Relies on: the primary keys of tenure_settings_version and tenure_settings.

-- statement: moved
update tenure_settings_version
set version = version + 1
where singleton = 1
    and version = :version
returning version;

-- statement: taken_out
delete from tenure_settings
where name in (
    select change.value ->> 0
    from json_each(:change) as change
    where change.value ->> 1 is null
);

-- statement: written
insert into tenure_settings (name, value)
select change.value ->> 0, change.value ->> 1
from json_each(:change) as change
where change.value ->> 1 is not null
on conflict (name) do update set
    value = excluded.value;
