-- A digest of all definitions in a database. A changed row of the catalogue has a new `xmin`; a
-- copy of a database keeps it. Where emptying a table also changes the row, the digest uses
-- selected columns instead.
select concat_ws(' ',
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, relname, relkind, relowner, relacl, reloptions, relrowsecurity,
             relnamespace from pg_class where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select attrelid, attnum, xmin from pg_attribute where attrelid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_attrdef where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_proc where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_type where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_trigger where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_constraint where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select indexrelid, indisvalid, indisready, indisclustered from pg_index
      where indexrelid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_rewrite where oid >= 16384) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_namespace where nspname not like 'pg\_%') t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_extension where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_default_acl where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_policy where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_event_trigger where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_publication where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_statistic_ext where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select oid, xmin from pg_largeobject_metadata where true) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select setrole, setconfig from pg_db_role_setting
      where setdatabase = (select oid from pg_database where datname = current_database())) t),
    (select coalesce(sum(hashtextextended(t::text, 0)), 0) from (
      select datdba, datconnlimit, datallowconn, datacl from pg_database
      where datname = current_database()) t)
)
