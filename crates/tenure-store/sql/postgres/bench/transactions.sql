-- transactions: how many transactions this database has finished.
-- Parameters: none.
-- Returns: the number.
-- Keeps: nothing.
-- Relies on: nothing.
select xact_commit + xact_rollback
from pg_stat_database
where datname = current_database()
