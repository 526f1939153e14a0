-- settle_done_and_claim: settles a whole lease as done and claims the next, the fast path. What the settle
-- half makes claimable is not seen by the claim half. The claim half is the text of claim.sql.
-- Parameters: $1 now, $2 token, $3 the ids of the lease, ascending, $4 the rules of the endpoints by which
--   nothing is owed (null: it does not matter); for the claim: $5 token, $6 holder, $7 term in us, $8 limit,
--   $9 lanes, $10 and $11 their cursors, $12 rows of ready, $13 items of one domain, $14 rows of each lane.
-- Returns: settled (0: the lease is not exactly these ids, nothing was settled; take settle.sql), is_late,
--   whether a domain is rung for, whether one has a new head, whether the rules are others by now (then
--   nothing was settled); and beside it one row per claimed item (or one row of nulls).
-- Keeps: laws 3, 4, 6, 7: the lease goes only if token and ids are the same. And those of claim.sql.
--   Whoever leaves a domain without a head rings, as in settle.sql.
-- Relies on: tenure_leases_pkey, tenure_domains_pkey, tenure_backlog_pkey,
--   tenure_endpoints_version_pkey, and what claim.sql relies on.
with ended as (
    delete from tenure_leases
    where token = $2 and ids = $3::bigint[]
      and ($4::bigint is null
           or $4::bigint = (select v.rules from tenure_endpoints_version v where v.one = 1))
    returning token, holder, fence, claimed_at, ids, domains,
              locked_until <= coalesce($1::timestamptz, now()) as is_late
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'done', coalesce($1::timestamptz, now()), claimed_at, holder, fence, ids[1],
           ids[cardinality(ids)], ids
    from ended
), own as materialized (
    select d.domain, d.paused, d.ordering_key
    from (
        select distinct i.domain
        from ended cross join unnest(ended.domains) as i(domain)
        where i.domain is not null
        order by i.domain
    ) as r
    cross join lateral (
        select d.domain, d.paused, d.ordering_key
        from tenure_domains d
        where d.domain = r.domain
        for update
    ) d
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
), head as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, available_at, id, domain
    from promoted
), standing as (
    update tenure_domains d
    set head = n.head,
        since = case when d.paused then d.since else coalesce($1::timestamptz, now()) end
    from (
        select domain, max(head) as head
        from (
            select domain, null::bigint as head from own
            union all
            select domain, id from promoted
        ) as s
        group by domain
    ) as n
    where d.domain = n.domain
), rang as (
    insert into tenure_arrivals (domain, ordering_key)
    select domain, ordering_key
    from own
    where not paused and (domain in (select domain from promoted)) is not true
), lane as materialized (
    select c.lane, c.at, c.id, c.most
    from unnest($9::int[], $10::timestamptz[], $11::bigint[], $14::bigint[]) as c(lane, at, id, most)
    where (select q.paused from tenure_queues q where q.number = c.lane >> 4) is not true
), due as materialized (
    select r.place, r.lane, r.available_at, r.id, r.domain
    from lane c
    cross join lateral (
        select ctid as place, lane, available_at, id, domain
        from tenure_ready
        where lane = c.lane
          and available_at <= coalesce($1::timestamptz, now())
          and (available_at, id) >= (c.at, c.id)
        order by available_at, id
        limit c.most
        for update skip locked
    ) as r
    limit $12
), leader as materialized (
    select row_number() over () as nth, place, lane, available_at, id, domain
    from due
    where domain is not null
), chosen as materialized (
    select place, lane, available_at, id, domain, is_follower
    from (
        select f.*, row_number() over (order by nth, turn) as pos
        from (
            select nth, 0::bigint as turn, place, lane, available_at, id, domain, false as is_follower
            from leader
            union all
            select l.nth, b.turn, b.place, b.lane, b.available_at, b.id, l.domain, true
            from leader l
            cross join lateral (
                select b.place, b.turn, b.lane, b.available_at, b.id,
                       bool_and(b.lane = l.lane and b.id = b.turn and b.id > l.id
                                and b.available_at <= coalesce($1::timestamptz, now()))
                           over (order by b.turn) as is_next
                from (
                    select ctid as place, turn, lane, available_at, id
                    from tenure_backlog
                    where domain = l.domain
                    order by turn
                    limit $13::bigint - 1
                ) as b
            ) as b
            where $13::bigint > 1
              and b.is_next
              and (select s.id from tenure_setbacks s where s.id = l.id) is null
        ) as f
    ) as f
    where pos <= $8::bigint - (select count(*) from due where domain is null)
), taken as (
    delete from tenure_ready
    where ctid = any (array(
        select place from due where domain is null
        union all
        select place from chosen where not is_follower))
), followed as (
    delete from tenure_backlog
    where ctid = any (array(select place from chosen where is_follower))
    returning id, lane, available_at, domain
), got as materialized (
    select id, lane, available_at, domain, false as is_follower
    from due
    where domain is null
    union all
    select id, lane, available_at, domain, false
    from chosen
    where not is_follower
    union all
    select id, lane, available_at, domain, true
    from followed
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids, domains)
    select $5, $6, coalesce($1::timestamptz, now()),
           coalesce($1::timestamptz, now()) + $7::bigint * interval '1 us', array_agg(id order by id),
           case when bool_or(domain is not null) then array_agg(domain order by id) end
    from got
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.settled, a.is_late, exists (select from tenure_arrivals) as is_rung,
       exists (select from promoted) as has_promoted,
       coalesce($4::bigint <> (select v.rules from tenure_endpoints_version v where v.one = 1), false)
           as is_stale, c.*
from (select count(*) as settled, coalesce(bool_or(is_late), false) as is_late from ended) a
left join (
    select d.id, d.lane, d.available_at, l.fence, l.claimed_at, l.locked_until,
           e.event_id, e.topic, e.ordering_key, e.lane as own_lane, e.payload, e.headers, e.encoding,
           s.attempts, s.failures, s.crashes, s.generation, d.is_follower,
           (select count(*) from due) as seen, e.source
    from got d
    cross join lease l
    cross join lateral (select * from tenure_events e where e.id = d.id offset 0) e
    left join lateral (select * from tenure_setbacks s where s.id = d.id offset 0) s on true
) c on true
