-- turn: one adoption of a table at a time, until the connection ends.
-- Parameters: $1 the table's name.
-- Returns: whether it is our turn.
-- Keeps: two adoptions at once would drop each other's indexes.
-- Relies on: nothing.
select pg_try_advisory_lock(hashtextextended('tenure adopt ' || $1::text, 7407170002)) as is_ours
