-- The contents of a migrated database, for `empty.sql`: its first rows and the state of its
-- sequences. Everything created later has a higher oid than `last_oid`.
with relations as (
    select c.oid::regclass::text as name, relkind
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid >= 16384 and nspname not like 'pg\_%'
),
contents as (
    select name,
           (xpath('/row/rows/text()', query_to_xml(format(
               'select to_json(array_agg(t))::text as rows from %s t', name), false, true, '')))[1]
               ::text as rows
    from relations where relkind = 'r'
)
select json_build_object(
    'last_oid', (select max(oid) from (
        select oid from pg_class union all select oid from pg_proc union all
        select oid from pg_type union all select oid from pg_namespace) o),
    'rows', (select json_agg(json_build_object('name', name, 'rows', rows::json) order by name)
             from contents where rows is not null),
    'sequences', (select json_agg(json_build_object(
                      'name', name, 'value', coalesce(last_value, start_value),
                      'called', last_value is not null) order by name)
                  from relations join pg_sequences s on s.sequencename = name
                  where relkind = 'S')
)::text
