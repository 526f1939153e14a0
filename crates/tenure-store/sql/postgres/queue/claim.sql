-- claim: moves due items from ready into one new lease and returns them with their payloads; a head brings
-- a run of its key along.
-- Parameters: $1 now, $2 token, $3 holder, $4 term in microseconds, $5 limit, $6 lanes in the order of
--   their urgency, $7 and $8 the cursor of each lane: rows before (time, id) are not read, $9 maximum rows
--   of ready to read, $10 maximum items of one key, $11 maximum rows of each lane.
-- Returns: in each row whether there are arrivals (promote.sql); per item (or one row of nulls): id, lane,
--   available_at, the lease's fence, claimed_at, locked_until, the event and its counters; whether it
--   follows a head; the number of rows of ready that were read; for a delivery its event. The caller sorts.
-- Keeps: laws 1, 2, 6, 7. The subquery of `due` locks row by row and stops at its limit; an order by
--   outside of it would lock that many rows in every lane. Rows are deleted by ctid: they are locked and
--   never updated. A run follows only a head that is locked; an item of the backlog is claimed only if its
--   row was deleted.
-- Relies on: tenure_ready_pkey, tenure_events_pkey, tenure_setbacks_pkey, tenure_backlog_pkey,
--   tenure_arrivals_pkey. `offset 0` leaves the planner only one plan; without it a plan made for `limit
--   $9` hashes all events.
with lane as materialized (
    select c.lane, c.at, c.id, c.most
    from unnest($6::int[], $7::timestamptz[], $8::bigint[], $11::bigint[]) as c(lane, at, id, most)
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
    limit $9
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
                    limit $10::bigint - 1
                ) as b
            ) as b
            where $10::bigint > 1
              and b.is_next
              and (select s.id from tenure_setbacks s where s.id = l.id) is null
        ) as f
    ) as f
    where pos <= $5::bigint - (select count(*) from due where key_hash is null)
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
    select $2, $3, coalesce($1::timestamptz, statement_timestamp()),
           coalesce($1::timestamptz, statement_timestamp()) + $4::bigint * interval '1 us', array_agg(id order by id),
           case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end
    from got
    having count(*) > 0
    returning fence, claimed_at, locked_until
)
select a.has_arrivals, c.*, (select max(q.number) from tenure_queues q) as last_queue
from (select exists (select from tenure_arrivals) as has_arrivals) a
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
