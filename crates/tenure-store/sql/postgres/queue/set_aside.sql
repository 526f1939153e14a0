-- set_aside: returns claimed items to their places, as if the claim had not taken them, and changes their
-- lanes.
-- Parameters: $1 token, $2 ids, $3 their new lanes (null: unchanged), $4 their delays in microseconds, $5
--   whether each follows another item of its key.
-- Returns: the number of items.
-- Keeps: laws 1, 2, 6, 7: it changes only the lease with this token, and locks it first, then the keys of
--   heads. An item that follows goes back behind the head of its key, and so does a head whose key was
--   paused meanwhile. A lease without items ends, and its token is unused again.
-- Relies on: tenure_leases_pkey, tenure_events_pkey, tenure_setbacks_pkey, tenure_keys_pkey.
with lease as materialized (
    select ids, key_hashes
    from tenure_leases
    where token = $1
    for update
), held as materialized (
    select h.id, h.key_hash
    from lease l
    cross join unnest(l.ids, l.key_hashes) as h(id, key_hash)
), named as materialized (
    select id, max(key_hash) as key_hash, max(lane) as lane, max(delay) as delay,
           bool_or(is_behind) as is_behind, bool_or(is_held) as is_held, bool_or(is_named) as is_named
    from (
        select h.id, h.key_hash, null::int as lane, null::bigint as delay, null::boolean as is_behind,
               true as is_held, false as is_named
        from held h
        union all
        select n.id, null, n.lane, n.delay, n.is_behind, false, true
        from unnest($2::bigint[], $3::int[], $4::bigint[], $5::boolean[]) as n(id, lane, delay, is_behind)
    ) as n
    group by id
), paused as materialized (
    select k.key_hash
    from (
        select key_hash
        from named
        where is_held and is_named and not is_behind and key_hash is not null
        order by key_hash
    ) as h
    cross join lateral (
        select k.key_hash, k.is_paused
        from tenure_keys k
        where k.key_hash = h.key_hash
        for update
    ) k
    where k.is_paused
), back as materialized (
    select n.id, n.key_hash, n.lane as new_lane, n.delay, coalesce(s.turn, n.id) as turn,
           n.is_behind or (n.key_hash in (select key_hash from paused)) is true as is_behind,
           coalesce(n.lane, s.lane, e.lane) as lane,
           coalesce(s.available_at, e.available_at) + n.delay * interval '1 us' as available_at
    from named n
    cross join lateral (select e.lane, e.available_at from tenure_events e where e.id = n.id offset 0) e
    left join lateral (
        select s.lane, s.available_at, s.turn from tenure_setbacks s where s.id = n.id offset 0
    ) s on true
    where n.is_held and n.is_named
), ended as (
    delete from tenure_leases
    where token = $1 and not exists (select from named where is_held and not is_named)
), kept as (
    update tenure_leases
    set ids = r.ids,
        key_hashes = r.key_hashes
    from (
        select array_agg(id order by id) as ids,
               case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end as key_hashes
        from named
        where is_held and not is_named
    ) as r
    where token = $1 and r.ids is not null
), noted as (
    insert into tenure_setbacks as s (id, lane, available_at)
    select id, new_lane, case when delay > 0 then available_at end
    from back
    where new_lane is not null or delay > 0
    on conflict (id) do update
    set lane = coalesce(excluded.lane, s.lane),
        available_at = coalesce(excluded.available_at, s.available_at)
), ready as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from back
    where not is_behind
), behind as (
    insert into tenure_backlog (key_hash, turn, id, available_at, lane)
    select key_hash, turn, id, available_at, lane
    from back
    where is_behind
), headless as (
    update tenure_keys
    set head = null
    where key_hash in (select key_hash from paused)
)
select count(*) as items
from back
