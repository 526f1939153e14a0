-- domains: ordering keys that have something open or are paused, those first that have had their head, or
-- have been paused, for longest. Of those that stand still, first the blocked ones, so that no limit hides
-- them. Keys of which nothing has its place yet are the last, as idle.
-- Parameters: $1 whether only those that stand still, $2 limit, $3 one key (null: any), $4 how far to count
--   what waits and to look at arrivals, $5 from which age in us on a head with something behind it stands
--   still.
-- Returns: ordering_key, the id of the head (the first that is held, while something is), since, blocked,
--   paused, how many wait; the moment; whether it comes before the others.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_domains, read whole unless one is asked for; tenure_backlog_pkey, tenure_setbacks_pkey,
--   tenure_arrivals_pkey, from the oldest. Leases are few and are scanned.
with held as materialized (
    select i.domain, min(i.id) as id
    from tenure_leases l
    cross join unnest(l.ids, l.domains) as i(id, domain)
    where l.domains is not null and i.domain is not null
    group by i.domain
), domain as materialized (
    select d.domain, d.ordering_key, d.head, d.since, d.blocked, d.paused,
           $1::boolean and d.blocked as is_first
    from tenure_domains d
    left join lateral (
        select s.failures + s.crashes as setbacks from tenure_setbacks s where s.id = d.head offset 0
    ) s on true
    where (d.domain = tenure_domain($3::text) or ($3::text is null and (d.head is not null or d.paused)))
      and (not $1::boolean or d.blocked or s.setbacks > 0
           or ((d.paused or (d.head is not null and d.since < now() - $5::bigint * interval '1 us'))
               and (select true from tenure_backlog b where b.domain = d.domain limit 1)))
    order by is_first desc, d.since, d.ordering_key
    limit $2
), rung as materialized (
    select a.domain, min(a.ordering_key) as ordering_key
    from (
        select domain, ordering_key
        from tenure_arrivals
        where not $1::boolean and $3::text is null
        order by arrival
        limit $4
    ) as a
    where (select d.head is not null or d.paused from tenure_domains d where d.domain = a.domain) is not true
    group by a.domain
), found as (
    select d.domain, d.ordering_key, coalesce(h.id, d.head) as head, d.since, d.blocked, d.paused, d.is_first
    from domain d
    left join held h on h.domain = d.domain
    union all
    select r.domain, r.ordering_key, null, null, false, false, false
    from rung r
    where (select true from tenure_backlog b where b.domain = r.domain limit 1)
    union all
    select tenure_domain($3::text), $3::text, null, null, false, false, false
    where $3::text is not null and not exists (select from domain)
    order by is_first desc, since, ordering_key
    limit $2
)
select f.ordering_key, f.head, f.since, f.blocked, f.paused,
       (select count(*)
        from (select from tenure_backlog b where b.domain = f.domain limit $4) as b) as waiting,
       now() as now, f.is_first
from found f
order by f.is_first desc, f.since, f.ordering_key
