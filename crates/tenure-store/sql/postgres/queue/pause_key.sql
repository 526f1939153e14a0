-- pause_key: pauses a key. Its head moves from ready into the backlog; held items are not interrupted.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: laws 6, 7: under the lock of the key's row, which lock_key.sql has taken. Without the lock, this
--   statement could miss a concurrent promotion, and a claim would take that head in spite of the pause.
-- Relies on: tenure_keys_pkey, tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey.
with own as materialized (
    select k.key_hash, k.head, k.is_paused
    from tenure_keys k
    where k.key_hash = tenure_key_hash($2::text)
    for update
), waiting as (
    delete from tenure_ready
    where ctid = any (array(
        select r.ctid
        from own o
        join tenure_events e on e.id = o.head
        left join tenure_setbacks s on s.id = e.id
        join tenure_ready r
            on r.lane = coalesce(s.lane, e.lane)
            and r.available_at = coalesce(s.available_at, e.available_at)
            and r.id = e.id))
    returning id, key_hash, lane, available_at
), behind as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select w.key_hash, coalesce(s.turn, w.id), w.id, w.lane, w.available_at
    from waiting w
    left join tenure_setbacks s on s.id = w.id
)
update tenure_keys k
set is_paused = true,
    head = case when exists (select from waiting) then null else o.head end,
    state_since = case when o.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
from own o
where k.key_hash = o.key_hash
