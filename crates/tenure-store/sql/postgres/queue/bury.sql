-- bury: settles a pending or claimed item as dead. The operator claims a pending item and settles it in the
-- same statement (an item cannot go from pending to dead directly); a claimed item leaves its holder's
-- lease. If the item is a head, its key continues with the next one.
-- Parameters: $1 now, $2 id, $3 reason, $4 the operator's token, $5 the operator, $6 whether to bury only a
--   head: then not an item behind another one or in a paused key.
-- Returns: the id, or no row: the item is neither pending nor claimed, is not a head ($6), or
--   another transaction has locked it (run look, then retry).
-- Keeps: laws 5, 6, 7. It waits for no lock, so it cannot deadlock: an item with a key is buried only under
--   the lock of its key. A key that is left without a head gets an arrival, as in settle.sql.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_keys_pkey,
--   tenure_backlog_pkey. Leases are few and are scanned.
with event as materialized (
    select e.id, tenure_key_hash(e.ordering_key) as key_hash, coalesce(s.turn, e.id) as turn,
           coalesce(s.lane, e.lane) as lane, coalesce(s.available_at, e.available_at) as available_at
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    where e.id = $2::bigint
), own as materialized (
    select k.key_hash, k.is_paused, k.ordering_key
    from event e
    cross join lateral (
        select k.key_hash, k.is_paused, k.ordering_key
        from tenure_keys k
        where k.key_hash = e.key_hash
        for update skip locked
    ) k
), may as materialized (
    select *
    from event e
    where e.key_hash is null
       or exists (select from own)
       or (select k.key_hash from tenure_keys k where k.key_hash = e.key_hash) is null
), held as materialized (
    select token, holder, fence, claimed_at, ids, key_hashes
    from tenure_leases
    where $2::bigint = any (ids) and exists (select from may)
    for update skip locked
), emptied as (
    delete from tenure_leases l
    using held
    where l.token = held.token and cardinality(held.ids) = 1
), kept as (
    update tenure_leases l
    set ids = r.ids, key_hashes = r.key_hashes
    from held
    cross join lateral (
        select array_agg(i.id order by i.id) as ids,
               case when bool_or(i.key_hash is not null) then array_agg(i.key_hash order by i.id) end
                   as key_hashes
        from unnest(held.ids, held.key_hashes) as i(id, key_hash)
        where i.id <> $2::bigint
    ) as r
    where l.token = held.token and cardinality(held.ids) > 1
), waiting as (
    delete from tenure_ready
    where ctid = any (array(
        select r.ctid
        from may e
        join tenure_ready r on r.lane = e.lane and r.available_at = e.available_at and r.id = e.id
        for update of r skip locked))
    returning id, key_hash
), behind as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.ctid
        from may e
        join tenure_backlog b on b.key_hash = e.key_hash and b.turn = e.turn and b.id = e.id
        where not $6::boolean
        for update of b skip locked))
    returning id
), freed as materialized (
    select o.key_hash, o.is_paused, o.ordering_key
    from own o
    where exists (select from waiting)
       or exists (
           select
           from held
           where not exists (
               select from unnest(held.ids, held.key_hashes) as i(id, key_hash)
               where i.key_hash = o.key_hash and i.id <> $2::bigint))
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from freed f
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = f.key_hash and not f.is_paused
            order by b.turn
            limit 1
        ) b))
    returning key_hash, id, lane, available_at
), head as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), standing as (
    update tenure_keys k
    set head = (select p.id from promoted p),
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from freed f
    where k.key_hash = f.key_hash
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from freed
    where not is_paused and not exists (select from promoted)
), hold as materialized (
    select token, holder, fence, claimed_at
    from held
    union all
    select $4::text, $5::text, tenure_next_fence(), coalesce($1::timestamptz, statement_timestamp())
    from (select id from waiting union all select id from behind) as pending
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select token, 'buried', coalesce($1::timestamptz, statement_timestamp()), claimed_at, holder, fence, $2, $2,
           array[$2::bigint]
    from hold
), setback as (
    insert into tenure_setbacks as s (id, attempts, last_error)
    select $2, 1, $3
    from hold
    on conflict (id) do update set attempts = s.attempts + 1, last_error = excluded.last_error
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select $2, coalesce($1::timestamptz, statement_timestamp()), 'buried', $3
    from hold
)
select $2::bigint as id
from hold
