-- reap: ends lapsed leases; their items become pending again with updated counters, or dead. A
-- worker was processing only the first item of a run, so only that one has crashed: this repeats
-- the rule lapse_run of tenure-core.
-- Parameters: $1 now, $2 limit (leases), $3 whether a term that ends exactly now is over, $4 crash limit,
--   $5 delays in microseconds by number of lapses, $6 lapses from which an item is claimed alone, $7
--   whether a dead item blocks its key.
-- Returns: per item: id, holder, fence, crashes, is_dead, available_at, stale time in microseconds.
-- Keeps: laws 5, 6, 7: the predicate is checked again on the locked row; a lease that another reap or a
--   settle has locked is skipped. The counters read here are current: only the holder of the locked lease
--   changes them. A key that is left without a head gets an arrival, as in settle.sql.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_keys_pkey, tenure_backlog_pkey. Leases are
--   few and are scanned.
with lapsed as materialized (
    select token, holder, fence, claimed_at, locked_until, ids, key_hashes
    from tenure_leases
    where locked_until < coalesce($1::timestamptz, statement_timestamp())
       or ($3::boolean and locked_until = coalesce($1::timestamptz, statement_timestamp()))
    order by locked_until
    limit $2
    for update skip locked
), charged as materialized (
    select l.holder, l.fence, l.locked_until, i.id, i.key_hash, e.lane as own_lane, s.lane, s.turn,
           coalesce(s.available_at, e.available_at) as available_at,
           coalesce(s.crashes, 0) + i.is_first::int as crashes, i.is_first, i.is_second,
           i.is_first and coalesce(s.crashes, 0) + 1 > $4::int as is_dead
    from lapsed l
    cross join lateral (
        select u.id, u.key_hash,
               u.key_hash is null or row_number() over (partition by u.key_hash order by u.id) = 1 as is_first,
               u.key_hash is not null and row_number() over (partition by u.key_hash order by u.id) = 2
                   as is_second
        from unnest(l.ids, l.key_hashes) as u(id, key_hash)
    ) i
    cross join lateral (select lane, available_at from tenure_events e where e.id = i.id offset 0) e
    left join lateral (
        select crashes, lane, available_at, turn from tenure_setbacks s where s.id = i.id offset 0
    ) s on true
), run as materialized (
    select id, key_hash, is_first, is_second, is_dead,
           bool_or(is_dead) over (partition by key_hash) as has_died,
           count(*) over (partition by key_hash) as length
    from charged
    where key_hash is not null
), own as materialized (
    select k.key_hash, k.is_paused, k.ordering_key, r.is_open
    from (
        select key_hash, bool_or(has_died and length = 1 and not $7::boolean) as is_open
        from run
        group by key_hash
        order by key_hash
    ) as r
    cross join lateral (
        select k.key_hash, k.is_paused, k.ordering_key
        from tenure_keys k
        where k.key_hash = r.key_hash
        for update
    ) k
), head as materialized (
    select r.id, r.key_hash, r.is_dead as is_blocking
    from run r
    where case
              when not r.has_died then r.is_first
              when $7::boolean then r.is_first
              else r.is_second
          end
      and (r.is_dead or (r.key_hash in (select key_hash from own where is_paused)) is not true)
), item as materialized (
    select c.holder, c.fence, c.locked_until, c.id, c.key_hash, c.own_lane, c.turn, c.crashes, c.is_first,
           c.is_dead,
           not c.is_dead and (c.key_hash is null or (c.id in (select id from head)) is true) as is_ready,
           case
               when c.is_first and c.crashes >= $6::int then (c.own_lane >> 4) * 16 + 8
               else c.lane
           end as lane,
           case
               when not c.is_first then c.available_at
               when not c.is_dead then
                   coalesce($1::timestamptz, statement_timestamp())
                       + ($5::bigint[])[least(c.crashes, cardinality($5::bigint[]))] * interval '1 us'
           end as available_at
    from charged c
), ended as (
    delete from tenure_leases l
    using lapsed
    where l.token = lapsed.token
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select token, 'lapsed', coalesce($1::timestamptz, statement_timestamp()), claimed_at, holder, fence, ids[1],
           ids[cardinality(ids)], ids
    from lapsed
), setback as (
    insert into tenure_setbacks as s (id, attempts, crashes, last_error, lane, available_at)
    select id, 1, is_first::int,
           case
               when is_dead then 'crash_loop: lease lapsed'
               when is_first then 'lease lapsed'
           end,
           lane, case when is_first then available_at end
    from item
    on conflict (id) do update set
        attempts = s.attempts + 1,
        crashes = s.crashes + excluded.crashes,
        last_error = coalesce(excluded.last_error, s.last_error),
        lane = excluded.lane,
        available_at = coalesce(excluded.available_at, s.available_at)
), back as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select coalesce(lane, own_lane), available_at, id, key_hash
    from item
    where is_ready
), behind as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select key_hash, coalesce(turn, id), id, coalesce(lane, own_lane), available_at
    from item
    where not is_ready and not is_dead
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select id, coalesce($1::timestamptz, statement_timestamp()), 'crash_loop', 'crash_loop: lease lapsed'
    from item
    where is_dead
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from own o
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = o.key_hash and o.is_open and not o.is_paused
            order by b.turn
            limit 1
        ) b))
    returning key_hash, id, lane, available_at
), next as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), standing as (
    update tenure_keys k
    set head = n.head, is_blocked = n.is_blocking,
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from (
        select key_hash, max(head) as head, bool_or(is_blocking) as is_blocking
        from (
            select key_hash, null::bigint as head, false as is_blocking from own
            union all
            select key_hash, id, false from promoted
            union all
            select key_hash, id, is_blocking from head
        ) as s
        group by key_hash
    ) as n
    where k.key_hash = n.key_hash and (k.head is distinct from n.head or n.is_blocking)
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from own
    where is_open and not is_paused and (key_hash in (select key_hash from promoted)) is not true
)
select id, holder, fence, crashes, is_dead, case when not is_dead then available_at end as available_at,
       (extract(epoch from coalesce($1::timestamptz, statement_timestamp()) - locked_until) * 1000000)::bigint
           as stale_us
from item
order by locked_until, id
