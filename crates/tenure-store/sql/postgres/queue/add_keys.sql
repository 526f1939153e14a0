-- add_keys: adds a row for each key that has arrivals and no row. It runs before promote.sql, because a
-- statement cannot change a row that it inserts.
-- Parameters: $1 now, $2 limit.
-- Returns: nothing.
-- Keeps: law 1: a new row has no head. Keys are sorted, so that two of these
--   statements cannot deadlock.
-- Relies on: tenure_arrivals_pkey, from the oldest; tenure_keys_pkey.
insert into tenure_keys (key_hash, state_since, ordering_key)
select a.key_hash, coalesce($1::timestamptz, statement_timestamp()), a.ordering_key
from (
    select key_hash, min(ordering_key) as ordering_key
    from (
        select key_hash, ordering_key
        from tenure_arrivals
        order by arrival
        limit $2
    ) as few
    group by key_hash
) as a
where (select k.key_hash from tenure_keys k where k.key_hash = a.key_hash) is null
order by a.key_hash
on conflict (key_hash) do nothing
