-- Brings a used database of the pool back to the state after its migration: drops what was added,
-- empties the tables, restores their first rows, resets sequences and statistics. The answer of
-- `snapshot.sql` after the migration replaces the marker.
do $reset$
declare
    migrated constant json := $snapshot$%SNAPSHOT%$snapshot$;
    last_oid constant oid := (migrated ->> 'last_oid')::oid;
    item record;
    text text;
begin
    -- Disable triggers and foreign keys for the deletes.
    perform set_config('session_replication_role', 'replica', true);
    perform set_config('client_min_messages', 'error', true);

    foreach text in array array(
        select format('drop schema %s cascade', oid::regnamespace) from pg_namespace
        where oid > last_oid and nspname not like 'pg\_%'
    ) loop
        execute text;
    end loop;
    -- Sequences last: most of them go with their table.
    foreach text in array array(
        select format('drop %s if exists %s cascade',
                      case relkind when 'v' then 'view' when 'm' then 'materialized view'
                                   when 'S' then 'sequence' else 'table' end, c.oid::regclass)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid > last_oid and relkind in ('r', 'p', 'v', 'm', 'S') and nspname not like 'pg\_%'
        order by relkind = 'S'
    ) loop
        execute text;
    end loop;
    foreach text in array array(
        select format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc
        where oid > last_oid
    ) loop
        execute text;
    end loop;

    -- A small table is emptied faster by `delete`: `truncate` makes new files.
    for item in
        select c.oid::regclass as name, pg_relation_size(c.oid) > 32768 as is_large
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where relkind = 'r' and c.oid >= 16384 and nspname not like 'pg\_%'
    loop
        if item.is_large then
            execute format('truncate %s', item.name);
        else
            execute format('delete from %s', item.name);
        end if;
    end loop;
    for item in select * from json_to_recordset(migrated -> 'rows') as t(name text, rows json)
    loop
        execute format(
            'insert into %1$s overriding system value
             select * from json_populate_recordset(null::%1$s, $1)', item.name)
        using item.rows;
    end loop;
    for item in
        select * from json_to_recordset(migrated -> 'sequences')
            as t(name text, value bigint, called boolean)
    loop
        perform setval(item.name::regclass, item.value, item.called);
    end loop;

    delete from pg_statistic where starelid >= 16384;
    update pg_class set relpages = 0, reltuples = -1, relallvisible = 0
    where oid >= 16384 and relkind in ('r', 't') and (relpages > 0 or reltuples >= 0);
    update pg_class set relpages = 1, reltuples = 0, relallvisible = 0
    where oid >= 16384 and relkind = 'i' and (relpages > 1 or reltuples > 0);
end
$reset$;
