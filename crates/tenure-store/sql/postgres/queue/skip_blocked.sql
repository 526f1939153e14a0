-- skip_blocked: continues a key without the dead head that blocks it, and records the operator's note.
-- Parameters: $1 now, $2 ordering key, $3 the dead item, $4 the note, $5 the separator between note and
--   last error, $6 maximum number of characters of the new last error.
-- Returns: its id, or no row: the item does not block the key.
-- Keeps: laws 4, 7: under the lock of the key's row; the item stays dead. A key that is left without a head
--   gets an arrival.
-- Relies on: tenure_keys_pkey, tenure_backlog_pkey, tenure_dead_pkey.
with own as materialized (
    select k.key_hash, k.head, k.is_paused, k.ordering_key
    from tenure_keys k
    where k.key_hash = tenure_key_hash($2::text) and k.is_blocked and k.head = $3::bigint
    for update
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from own o
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = o.key_hash and not o.is_paused
            order by b.turn
            limit 1
        ) b))
    returning key_hash, id, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), standing as (
    update tenure_keys k
    set is_blocked = false, head = (select p.id from promoted p),
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from own o
    where k.key_hash = o.key_hash
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from own
    where not is_paused and not exists (select from promoted)
), noted as (
    update tenure_dead d
    set last_error = left($4::text || coalesce($5::text || d.last_error, ''), $6::int)
    from own o
    where d.id = o.head
)
select head as id
from own
