-- promote: makes the first event of each key that has arrivals its head, if the key has none.
-- Parameters: $1 now, $2 limit.
-- Returns: one row: the number of arrivals read, of heads created, and of keys without a row (add_keys.sql
--   adds it; their arrivals stay).
-- Keeps: laws 1, 7. A head is created under the lock of the key's row, from the front of its backlog. An
--   arrival is deleted only if this or a later statement reads the backlog of its key: the settle of a head
--   reads it, and leaves an arrival if it finds no event; resume_key.sql also leaves one. The arrivals of a
--   key that another statement has locked, or changed since this snapshot, stay. It waits for no lock.
-- Relies on: tenure_arrivals_pkey, from the oldest; tenure_keys_pkey, tenure_backlog_pkey.
with arrived as materialized (
    select ctid as row_id, key_hash
    from tenure_arrivals
    order by arrival
    limit $2
    for update skip locked
), known as materialized (
    select a.key_hash, k.state_since, k.key_hash is null as is_new, k.head is not null as is_busy
    from (select distinct key_hash from arrived) as a
    left join lateral (
        select k.key_hash, k.state_since, k.head from tenure_keys k where k.key_hash = a.key_hash offset 0
    ) k on true
), own as materialized (
    select k.key_hash, k.head is not null or k.is_paused as is_busy
    from known a
    cross join lateral (
        select k.key_hash, k.head, k.is_paused
        from tenure_keys k
        where k.key_hash = a.key_hash and k.state_since = a.state_since
        for update skip locked
    ) k
    where not a.is_new and not a.is_busy
), next as materialized (
    select o.key_hash, b.row_id
    from own o
    left join lateral (
        select ctid as row_id
        from tenure_backlog b
        where b.key_hash = o.key_hash and not o.is_busy
        order by b.turn
        limit 1
    ) b on true
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(select row_id from next))
    returning key_hash, id, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), headed as (
    update tenure_keys k
    set head = p.id, state_since = coalesce($1::timestamptz, statement_timestamp())
    from promoted p
    where k.key_hash = p.key_hash
), answered as materialized (
    select key_hash from known where is_busy
    union all
    select key_hash from next where row_id is null
    union all
    select key_hash from promoted
), deleted as (
    delete from tenure_arrivals
    where ctid = any (array(
        select row_id from arrived where (key_hash in (select key_hash from answered)) is true))
)
select (select count(*) from arrived) as arrivals, (select count(*) from promoted) as heads,
       (select count(*) from known where is_new) as unknown_keys
