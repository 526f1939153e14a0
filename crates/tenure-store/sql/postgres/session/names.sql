-- names: reads the names under which the session has this very statement.
-- Parameters: none.
-- Returns: the names; sqlx chose them, or a pooler has replaced them by its own.
-- Keeps: nothing; it also makes the first name of a connection.
-- Relies on: nothing.
select name
from pg_catalog.pg_prepared_statements
where statement like '-- names: %' and not from_sql
