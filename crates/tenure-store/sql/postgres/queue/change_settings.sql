-- change_settings: changes the settings of the cluster, all of them or none.
-- Parameters: $1 the version that the caller has read, $2 names, each once, $3 values (null: removed).
-- Returns: the new version, or no row if the version has changed.
-- Keeps: of two changes that have read the same version one takes effect: the second waits for the first at
--   the version's row, and then no longer finds its version.
-- Relies on: tenure_settings_version_pkey, tenure_settings_pkey.
with moved as materialized (
    update tenure_settings_version
    set version = version + 1
    where singleton = 1 and version = $1
    returning version
),
change as materialized (
    select c.name, c.value
    from moved
    cross join unnest($2::text[], $3::text[]) as c(name, value)
),
taken_out as (
    delete from tenure_settings s
    using change c
    where s.name = c.name and c.value is null
),
written as (
    insert into tenure_settings (name, value)
    select name, value
    from change
    where value is not null
    on conflict (name) do update set value = excluded.value
)
select version
from moved
