-- bury: settles a pending or claimed item dead. A pending one is claimed by the operator and settled in
-- the same statement (there is no way from pending to dead); a claimed one leaves its holder's lease. The
-- domain of a head goes on with the next one.
-- Parameters: $1 now, $2 id, $3 reason, $4 the operator's token, $5 the operator, $6 whether it is buried
--   only as a head: then not while it waits behind another, or in a paused domain.
-- Returns: the id, or no row: it is neither pending nor claimed, or someone has it in hand this moment
--   (look, then ask again).
-- Keeps: laws 5, 6, 7. It waits for nobody, so it can be in no deadlock: who has a key is buried only under
--   the lock of its domain. Whoever leaves a domain without a head rings, as in settle.sql.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_domains_pkey,
--   tenure_backlog_pkey. Leases are few and are scanned.
with event as materialized (
    select e.id, tenure_domain(e.ordering_key) as domain, coalesce(s.turn, e.id) as turn,
           coalesce(s.lane, e.lane) as lane, coalesce(s.available_at, e.available_at) as available_at
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    where e.id = $2::bigint
), own as materialized (
    select d.domain, d.paused, d.ordering_key
    from event e
    cross join lateral (
        select d.domain, d.paused, d.ordering_key
        from tenure_domains d
        where d.domain = e.domain
        for update skip locked
    ) d
), may as materialized (
    select *
    from event e
    where e.domain is null
       or exists (select from own)
       or (select d.domain from tenure_domains d where d.domain = e.domain) is null
), held as materialized (
    select token, holder, fence, claimed_at, ids, domains
    from tenure_leases
    where $2::bigint = any (ids) and exists (select from may)
    for update skip locked
), emptied as (
    delete from tenure_leases l
    using held
    where l.token = held.token and cardinality(held.ids) = 1
), kept as (
    update tenure_leases l
    set ids = r.ids, domains = r.domains
    from held
    cross join lateral (
        select array_agg(i.id order by i.id) as ids,
               case when bool_or(i.domain is not null) then array_agg(i.domain order by i.id) end
                   as domains
        from unnest(held.ids, held.domains) as i(id, domain)
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
    returning id, domain
), behind as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.ctid
        from may e
        join tenure_backlog b on b.domain = e.domain and b.turn = e.turn and b.id = e.id
        where not $6::boolean
        for update of b skip locked))
    returning id
), freed as materialized (
    select o.domain, o.paused, o.ordering_key
    from own o
    where exists (select from waiting)
       or exists (
           select
           from held
           where not exists (
               select from unnest(held.ids, held.domains) as i(id, domain)
               where i.domain = o.domain and i.id <> $2::bigint))
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.place
        from freed f
        cross join lateral (
            select ctid as place
            from tenure_backlog b
            where b.domain = f.domain and not f.paused
            order by b.turn
            limit 1
        ) b))
    returning domain, id, lane, available_at
), head as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, available_at, id, domain
    from promoted
), standing as (
    update tenure_domains d
    set head = (select p.id from promoted p),
        since = case when d.paused then d.since else coalesce($1::timestamptz, now()) end
    from freed f
    where d.domain = f.domain
), rang as (
    insert into tenure_arrivals (domain, ordering_key)
    select domain, ordering_key
    from freed
    where not paused and not exists (select from promoted)
), hold as materialized (
    select token, holder, fence, claimed_at
    from held
    union all
    select $4::text, $5::text, nextval('tenure_fence'), coalesce($1::timestamptz, now())
    from (select id from waiting union all select id from behind) as pending
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'buried', coalesce($1::timestamptz, now()), claimed_at, holder, fence, $2, $2,
           array[$2::bigint]
    from hold
), setback as (
    insert into tenure_setbacks as s (id, attempts, last_error)
    select $2, 1, $3
    from hold
    on conflict (id) do update set attempts = s.attempts + 1, last_error = excluded.last_error
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select $2, coalesce($1::timestamptz, now()), 'buried', $3
    from hold
)
select $2::bigint as id
from hold
