-- resume_domain: lets a domain go on: the first of its backlog is its head, unless something of it is held.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: laws 1, 6, 7: under the lock of the domain's row. Whoever leaves a domain without a head rings.
-- Relies on: tenure_domains_pkey, tenure_backlog_pkey.
with own as materialized (
    select d.domain, d.head, d.ordering_key
    from tenure_domains d
    where d.domain = tenure_domain($2::text) and d.paused
    for update
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.place
        from own o
        cross join lateral (
            select ctid as place
            from tenure_backlog b
            where b.domain = o.domain and o.head is null
            order by b.turn
            limit 1
        ) b))
    returning domain, id, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, available_at, id, domain
    from promoted
), standing as (
    update tenure_domains d
    set paused = false, head = coalesce(o.head, (select p.id from promoted p)),
        since = coalesce($1::timestamptz, now())
    from own o
    where d.domain = o.domain
)
insert into tenure_arrivals (domain, ordering_key)
select domain, ordering_key
from own
where head is null and not exists (select from promoted)
