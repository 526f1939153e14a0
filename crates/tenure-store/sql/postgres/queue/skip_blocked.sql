-- skip_blocked: goes on without the dead head that blocks a domain, and writes down who said so.
-- Parameters: $1 now, $2 ordering key, $3 the dead one, $4 what is written before its last error, $5 what
--   stands between the two, $6 how many characters are kept.
-- Returns: its id, or no row: it blocks nothing.
-- Keeps: laws 4, 7: under the lock of the domain's row; the dead one stays dead. Whoever leaves a domain
--   without a head rings.
-- Relies on: tenure_domains_pkey, tenure_backlog_pkey, tenure_dead_pkey.
with own as materialized (
    select d.domain, d.head, d.paused, d.ordering_key
    from tenure_domains d
    where d.domain = tenure_domain($2::text) and d.blocked and d.head = $3::bigint
    for update
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.place
        from own o
        cross join lateral (
            select ctid as place
            from tenure_backlog b
            where b.domain = o.domain and not o.paused
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
    set blocked = false, head = (select p.id from promoted p),
        since = case when d.paused then d.since else coalesce($1::timestamptz, now()) end
    from own o
    where d.domain = o.domain
), rang as (
    insert into tenure_arrivals (domain, ordering_key)
    select domain, ordering_key
    from own
    where not paused and not exists (select from promoted)
), noted as (
    update tenure_dead d
    set last_error = left($4::text || coalesce($5::text || d.last_error, ''), $6::int)
    from own o
    where d.id = o.head
)
select head as id
from own
