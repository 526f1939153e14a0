-- turn: serializes adoptions of a table, until the connection ends.
-- Parameters: $1 the table's name.
-- Returns: whether this connection got the lock.
-- Keeps: two concurrent adoptions would drop each other's indexes.
-- Relies on: nothing.
select pg_try_advisory_lock(hashtextextended('tenure adopt ' || $1::text, 7407170002)) as is_ours
