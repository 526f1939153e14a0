-- enqueue_strict: waits for the open transactions of other strict producers of these keys. Run it before
-- the events draw their ids.
-- Parameters: $1 ordering keys.
-- Returns: nothing.
-- Keeps: law 7, for overlapping producers. Keys are sorted, so that two producers cannot deadlock.
-- Relies on: tenure_strict_keys_pkey.
insert into tenure_strict_keys as s (key_hash)
select distinct tenure_key_hash(k.ordering_key)
from unnest($1::text[]) as k(ordering_key)
order by 1
on conflict (key_hash) do update set key_hash = excluded.key_hash
