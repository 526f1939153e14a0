-- reap: ends lapsed leases; their items are claimable again with their counters moved, or dead. Of a run only
-- the first item was being worked on, so only it has crashed: see lapse_run in tenure-core, which this
-- repeats.
-- Parameters: $1 now, $2 limit (leases), $3 whether a term that ends this moment counts, $4 crash
--   budget, $5 delays in us by number of lapses, $6 lapses from which an item is claimed alone, $7 whether
--   a dead item blocks its domain.
-- Returns: per item: id, holder, fence, crashes, is_dead, available_at, stale time in microseconds.
-- Keeps: laws 5, 6, 7: the predicate is checked again on the locked row; what another reap or a settle
--   holds is skipped. The counters read here are right: nobody but the holder of the locked lease moves
--   them. Whoever leaves a domain without a head rings, as in settle.sql.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_domains_pkey, tenure_backlog_pkey. Leases are
--   few and are scanned.
with lapsed as materialized (
    select token, holder, fence, claimed_at, locked_until, ids, domains
    from tenure_leases
    where locked_until < coalesce($1::timestamptz, now())
       or ($3::boolean and locked_until = coalesce($1::timestamptz, now()))
    order by locked_until
    limit $2
    for update skip locked
), charged as materialized (
    select l.holder, l.fence, l.locked_until, i.id, i.domain, e.lane as own_lane, s.lane, s.turn,
           coalesce(s.available_at, e.available_at) as available_at,
           coalesce(s.crashes, 0) + i.is_first::int as crashes, i.is_first, i.is_second,
           i.is_first and coalesce(s.crashes, 0) + 1 > $4::int as is_dead
    from lapsed l
    cross join lateral (
        select u.id, u.domain,
               u.domain is null or row_number() over (partition by u.domain order by u.id) = 1 as is_first,
               u.domain is not null and row_number() over (partition by u.domain order by u.id) = 2
                   as is_second
        from unnest(l.ids, l.domains) as u(id, domain)
    ) i
    cross join lateral (select lane, available_at from tenure_events e where e.id = i.id offset 0) e
    left join lateral (
        select crashes, lane, available_at, turn from tenure_setbacks s where s.id = i.id offset 0
    ) s on true
), run as materialized (
    select id, domain, is_first, is_second, is_dead,
           bool_or(is_dead) over (partition by domain) as has_died,
           count(*) over (partition by domain) as length
    from charged
    where domain is not null
), own as materialized (
    select d.domain, d.paused, d.ordering_key, r.is_open
    from (
        select domain, bool_or(has_died and length = 1 and not $7::boolean) as is_open
        from run
        group by domain
        order by domain
    ) as r
    cross join lateral (
        select d.domain, d.paused, d.ordering_key
        from tenure_domains d
        where d.domain = r.domain
        for update
    ) d
), head as materialized (
    select r.id, r.domain, r.is_dead as is_blocking
    from run r
    where case
              when not r.has_died then r.is_first
              when $7::boolean then r.is_first
              else r.is_second
          end
      and (r.is_dead or (r.domain in (select domain from own where paused)) is not true)
), item as materialized (
    select c.holder, c.fence, c.locked_until, c.id, c.domain, c.own_lane, c.turn, c.crashes, c.is_first,
           c.is_dead,
           not c.is_dead and (c.domain is null or (c.id in (select id from head)) is true) as is_ready,
           case
               when c.is_first and c.crashes >= $6::int then (c.own_lane >> 4) * 16 + 8
               else c.lane
           end as lane,
           case
               when not c.is_first then c.available_at
               when not c.is_dead then
                   coalesce($1::timestamptz, now())
                       + ($5::bigint[])[least(c.crashes, cardinality($5::bigint[]))] * interval '1 us'
           end as available_at
    from charged c
), ended as (
    delete from tenure_leases l
    using lapsed
    where l.token = lapsed.token
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'lapsed', coalesce($1::timestamptz, now()), claimed_at, holder, fence, ids[1],
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
    insert into tenure_ready (lane, available_at, id, domain)
    select coalesce(lane, own_lane), available_at, id, domain
    from item
    where is_ready
), behind as (
    insert into tenure_backlog (domain, turn, id, lane, available_at)
    select domain, coalesce(turn, id), id, coalesce(lane, own_lane), available_at
    from item
    where not is_ready and not is_dead
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select id, coalesce($1::timestamptz, now()), 'crash_loop', 'crash_loop: lease lapsed'
    from item
    where is_dead
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.place
        from own o
        cross join lateral (
            select ctid as place
            from tenure_backlog b
            where b.domain = o.domain and o.is_open and not o.paused
            order by b.turn
            limit 1
        ) b))
    returning domain, id, lane, available_at
), next as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, available_at, id, domain
    from promoted
), standing as (
    update tenure_domains d
    set head = n.head, blocked = n.is_blocking,
        since = case when d.paused then d.since else coalesce($1::timestamptz, now()) end
    from (
        select domain, max(head) as head, bool_or(is_blocking) as is_blocking
        from (
            select domain, null::bigint as head, false as is_blocking from own
            union all
            select domain, id, false from promoted
            union all
            select domain, id, is_blocking from head
        ) as s
        group by domain
    ) as n
    where d.domain = n.domain and (d.head is distinct from n.head or n.is_blocking)
), rang as (
    insert into tenure_arrivals (domain, ordering_key)
    select domain, ordering_key
    from own
    where is_open and not paused and (domain in (select domain from promoted)) is not true
)
select id, holder, fence, crashes, is_dead, case when not is_dead then available_at end as available_at,
       (extract(epoch from coalesce($1::timestamptz, now()) - locked_until) * 1000000)::bigint
           as stale_us
from item
order by locked_until, id
