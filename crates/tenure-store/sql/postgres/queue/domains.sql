-- domains: ordering keys that have something open or are paused, those first that have had their head, or
-- have been paused, for longest.
-- Parameters: $1 whether only those that stand still, $2 limit, $3 one key (null: any), $4 how far to count
--   what waits.
-- Returns: ordering_key, the id of the head (the first that is held, while something is), since, blocked,
--   paused, how many wait; the moment.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_domains, read whole unless one is asked for; tenure_backlog_pkey, tenure_setbacks_pkey.
--   Leases are few and are scanned.
with held as materialized (
    select i.domain, min(i.id) as id
    from tenure_leases l
    cross join unnest(l.ids, l.domains) as i(id, domain)
    where l.domains is not null and i.domain is not null
    group by i.domain
), domain as materialized (
    select d.domain, d.ordering_key, d.head, d.since, d.blocked, d.paused
    from tenure_domains d
    left join lateral (
        select s.failures + s.crashes as setbacks from tenure_setbacks s where s.id = d.head offset 0
    ) s on true
    where (d.domain = tenure_domain($3::text) or ($3::text is null and (d.head is not null or d.paused)))
      and (not $1::boolean or d.blocked or d.paused or s.setbacks > 0)
    order by d.since
    limit $2
)
select d.ordering_key, coalesce(h.id, d.head) as head, d.since, d.blocked, d.paused,
       (select count(*)
        from (select from tenure_backlog b where b.domain = d.domain limit $4) as b) as waiting,
       now() as now
from domain d
left join held h on h.domain = d.domain
union all
select $3::text, null, null, false, false,
       (select count(*)
        from (select from tenure_backlog b where b.domain = tenure_domain($3::text) limit $4) as b), now()
where $3::text is not null and not exists (select from domain)
