-- change_settings: changes what is set for all processes, all of it or nothing.
-- Parameters: :version that the caller has seen; :change, a JSON array of [name, value], each name
--   once; a null value takes it out.
-- Returns: moved: the new version, or no row when it had moved, and then the rest must not be run.
-- Keeps: of two changes that have seen the same version one takes effect.
-- Relies on: the primary keys of tenure_settings_version and tenure_settings.

-- statement: moved
update tenure_settings_version
set version = version + 1
where one = 1
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
