-- sessions: the connections of Tenure's programs to this database.
-- Parameters: none.
-- Returns: the process ids.
-- Keeps: nothing; it only reads.
-- Relies on: the name that the store gives its connections.
select pid
from pg_stat_activity
where datname = current_database() and application_name = 'tenure'
