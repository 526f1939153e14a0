-- lock_key: locks the row of a key, and creates it if it does not exist. It runs before pause_key.sql, in
-- the same transaction: the later snapshot then shows the changes of earlier lock holders.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: law 1: a new row has no head.
-- Relies on: tenure_keys_pkey.
insert into tenure_keys as k (key_hash, state_since, ordering_key)
values (tenure_key_hash($2::text), coalesce($1::timestamptz, statement_timestamp()), $2::text)
on conflict (key_hash) do update set ordering_key = k.ordering_key
