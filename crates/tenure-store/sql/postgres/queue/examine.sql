-- examine: settings and state of the server, as seen on one of the store's connections.
-- Parameters: none.
-- Returns: server_version and its number; the version of Tenure's tables; fsync, synchronous_commit,
--   full_page_writes; the planner's four settings; connections, and those in use; the pid, state and age in
--   seconds of the oldest transaction of this database that holds back its vacuum, and whether this role
--   may see those of other roles; autovacuum, track_counts; in_recovery, read_only; the server's clock; the
--   lowest schema version of a program that can use the tables.
-- Keeps: nothing; it only reads. It shows no text of a query.
-- Relies on: tenure_migrations_pkey.
with session as materialized (
    select pid, datid, usesysid, state, xact_start, backend_type,
           backend_xid is not null or backend_xmin is not null as has_snapshot
    from pg_stat_activity
),
oldest as (
    select pid, state, xact_start
    from session
    where has_snapshot
      and pid <> pg_backend_pid()
      and xact_start is not null
      and backend_type <> 'autovacuum worker'
      and datid = (select oid from pg_database where datname = current_database())
    order by xact_start
    limit 1
)
select current_setting('server_version') as server_version,
       current_setting('server_version_num')::int as server_version_num,
       (select coalesce(max(version), 0) from tenure_migrations) as tables_version,
       current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('full_page_writes') as full_page_writes,
       array[current_setting('plan_cache_mode'), current_setting('enable_seqscan'),
             current_setting('enable_bitmapscan'), current_setting('jit')] as planner,
       current_setting('max_connections')::bigint
           - current_setting('superuser_reserved_connections')::bigint
           - coalesce(current_setting('reserved_connections', true)::bigint, 0) as connections,
       (select count(*) from session
        where usesysid is not null and coalesce(backend_type, 'client backend') = 'client backend')
           as in_use,
       oldest.pid as oldest_pid,
       oldest.state as oldest_state,
       extract(epoch from clock_timestamp() - oldest.xact_start)::bigint as oldest_seconds,
       pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees_all,
       current_setting('autovacuum') as autovacuum,
       current_setting('track_counts') as track_counts,
       pg_is_in_recovery() as in_recovery,
       current_setting('transaction_read_only') as read_only,
       clock_timestamp() as clock,
       (select coalesce(max(readable_from), 0) from tenure_migrations where version > 0) as readable_from
from (select 1) as always
left join oldest on true
