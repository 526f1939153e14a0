-- turn: takes the lock that serializes adoptions of a table. The lock ends with the transaction.
-- Parameters: $1 the table's name.
-- Returns: whether this transaction got the lock.
-- Keeps: one adoption of a table at a time: two would drop each other's indexes.
-- Relies on: nothing.
select pg_try_advisory_xact_lock(hashtextextended('tenure adopt ' || $1::text, 7407170002)) as is_ours
