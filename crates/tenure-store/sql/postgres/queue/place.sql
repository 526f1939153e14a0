-- place: gives the domains that were rung for a head, if they have none.
-- Parameters: $1 now, $2 limit.
-- Returns: one row: how many bells were looked at, how many heads were made, how many of the domains have
--   no row yet (place_new.sql makes it; their bells go on ringing).
-- Keeps: laws 1, 7. A head is made under the lock of the domain's row, from the front of its backlog. A bell
--   is taken off only when somebody will look into the backlog after it: a domain that is seen with a head
--   gets a settle, and whoever ends the last head rings again; one that is idle is looked at here. What is
--   in other hands, or was changed since this snapshot, goes on ringing. It waits for nobody.
-- Relies on: tenure_arrivals_pkey, from the oldest; tenure_domains_pkey, tenure_backlog_pkey.
with rung as materialized (
    select ctid as place, domain
    from tenure_arrivals
    order by arrival
    limit $2
    for update skip locked
), known as materialized (
    select k.domain, d.since, d.domain is null as is_new, d.head is not null as is_busy
    from (select distinct domain from rung) as k
    left join lateral (
        select d.domain, d.since, d.head from tenure_domains d where d.domain = k.domain offset 0
    ) d on true
), own as materialized (
    select d.domain, d.head is not null or d.paused as is_busy
    from known k
    cross join lateral (
        select d.domain, d.head, d.paused
        from tenure_domains d
        where d.domain = k.domain and d.since = k.since
        for update skip locked
    ) d
    where not k.is_new and not k.is_busy
), next as materialized (
    select o.domain, b.place
    from own o
    left join lateral (
        select ctid as place
        from tenure_backlog b
        where b.domain = o.domain and not o.is_busy
        order by b.turn
        limit 1
    ) b on true
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(select place from next))
    returning domain, id, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, available_at, id, domain
    from promoted
), headed as (
    update tenure_domains d
    set head = p.id, since = coalesce($1::timestamptz, now())
    from promoted p
    where d.domain = p.domain
), answered as materialized (
    select domain from known where is_busy
    union all
    select domain from next where place is null
    union all
    select domain from promoted
), off as (
    delete from tenure_arrivals
    where ctid = any (array(
        select place from rung where (domain in (select domain from answered)) is true))
)
select (select count(*) from rung) as rung, (select count(*) from promoted) as placed,
       (select count(*) from known where is_new) as unknown
