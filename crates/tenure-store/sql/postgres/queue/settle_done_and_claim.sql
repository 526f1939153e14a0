-- settle_done_and_claim: settles a whole lease as done and claims the next one: the fast path. The claim
-- half does not see items that the settle half makes claimable. The claim half is the text of claim.sql.
-- Parameters: $1 now, $2 token, $3 the ids of the lease, ascending, $4 the version of the endpoint rules
--   under which there are no deliveries (null: any); for the claim: $5 token, $6 holder, $7 term in
--   microseconds, $8 limit, $9 lanes, $10 and $11 their cursors, $12 rows of ready, $13 items of one key,
--   $14 rows of each lane.
-- Returns: settled (0: the lease does not hold exactly these ids, and nothing was settled; use settle.sql),
--   is_late, whether there are arrivals (promote.sql), whether a key has a new head, whether the rules have
--   changed (then nothing was settled), all in each row; one row per claimed item (or one row of nulls).
-- Keeps: laws 3, 4, 6, 7: the lease is deleted only if token and ids match. It also keeps the laws of
--   claim.sql. A key that is left without a head gets an arrival, as in settle.sql.
-- Relies on: tenure_leases_pkey, tenure_keys_pkey, tenure_backlog_pkey, tenure_endpoints_version_pkey, and
--   the indexes of claim.sql.
with ended as (
    delete from tenure_leases
    where token = $2 and ids = $3::bigint[]
      and ($4::bigint is null
           or $4::bigint = (select v.rules_version from tenure_endpoints_version v where v.singleton = 1))
    returning token, holder, fence, claimed_at, ids, key_hashes,
              locked_until <= coalesce($1::timestamptz, statement_timestamp()) as is_late
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select token, 'done', coalesce($1::timestamptz, statement_timestamp()), claimed_at, holder, fence, ids[1],
           ids[cardinality(ids)], ids
    from ended
), own as materialized (
    select k.key_hash, k.is_paused, k.ordering_key
    from (
        select distinct i.key_hash
        from ended cross join unnest(ended.key_hashes) as i(key_hash)
        where i.key_hash is not null
        order by i.key_hash
    ) as r
    cross join lateral (
        select k.key_hash, k.is_paused, k.ordering_key
        from tenure_keys k
        where k.key_hash = r.key_hash
        for update
    ) k
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from own o
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = o.key_hash and not o.is_paused
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
    set head = n.head,
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from (
        select key_hash, max(head) as head
        from (
            select key_hash, null::bigint as head from own
            union all
            select key_hash, id from promoted
        ) as s
        group by key_hash
    ) as n
    where k.key_hash = n.key_hash
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from own
    where not is_paused and (key_hash in (select key_hash from promoted)) is not true
), lane as materialized (
    select c.lane, c.at, c.id, c.most
    from unnest($9::int[], $10::timestamptz[], $11::bigint[], $14::bigint[]) as c(lane, at, id, most)
    where (select q.is_paused from tenure_queues q where q.number = c.lane >> 4) is not true
), due as materialized (
    select r.row_id, r.lane, r.available_at, r.id, r.key_hash
    from lane c
    cross join lateral (
        select ctid as row_id, lane, available_at, id, key_hash
        from tenure_ready
        where lane = c.lane
          and available_at <= coalesce($1::timestamptz, statement_timestamp())
          and (available_at, id) >= (c.at, c.id)
        order by available_at, id
        limit c.most
        for update skip locked
    ) as r
    limit $12
), leader as materialized (
    select row_number() over () as nth, row_id, lane, available_at, id, key_hash
    from due
    where key_hash is not null
), chosen as materialized (
    select row_id, lane, available_at, id, key_hash, is_follower
    from (
        select f.*, row_number() over (order by nth, turn) as pos
        from (
            select nth, 0::bigint as turn, row_id, lane, available_at, id, key_hash, false as is_follower
            from leader
            union all
            select l.nth, b.turn, b.row_id, b.lane, b.available_at, b.id, l.key_hash, true
            from leader l
            cross join lateral (
                select b.row_id, b.turn, b.lane, b.available_at, b.id,
                       bool_and(b.lane = l.lane and b.id = b.turn and b.id > l.id
                                and b.available_at <= coalesce($1::timestamptz, statement_timestamp()))
                           over (order by b.turn) as is_next
                from (
                    select ctid as row_id, turn, lane, available_at, id
                    from tenure_backlog
                    where key_hash = l.key_hash
                    order by turn
                    limit $13::bigint - 1
                ) as b
            ) as b
            where $13::bigint > 1
              and b.is_next
              and (select s.id from tenure_setbacks s where s.id = l.id) is null
        ) as f
    ) as f
    where pos <= $8::bigint - (select count(*) from due where key_hash is null)
), taken as (
    delete from tenure_ready
    where ctid = any (array(
        select row_id from due where key_hash is null
        union all
        select row_id from chosen where not is_follower))
), followed as (
    delete from tenure_backlog
    where ctid = any (array(select row_id from chosen where is_follower))
    returning id, lane, available_at, key_hash
), got as materialized (
    select id, lane, available_at, key_hash, false as is_follower
    from due
    where key_hash is null
    union all
    select id, lane, available_at, key_hash, false
    from chosen
    where not is_follower
    union all
    select id, lane, available_at, key_hash, true
    from followed
), lease as (
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids, key_hashes)
    select $5, $6, coalesce($1::timestamptz, statement_timestamp()),
           coalesce($1::timestamptz, statement_timestamp()) + $7::bigint * interval '1 us', array_agg(id order by id),
           case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end
    from got
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.settled, a.is_late, exists (select from tenure_arrivals) as has_arrivals,
       exists (select from promoted) as has_promoted,
       coalesce($4::bigint <> (select v.rules_version from tenure_endpoints_version v where v.singleton = 1), false)
           as is_stale, c.*, (select max(q.number) from tenure_queues q) as last_queue
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
