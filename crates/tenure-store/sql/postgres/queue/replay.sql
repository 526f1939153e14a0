-- replay: puts settled items back as a new generation. One with a key goes to the tail of its domain, except
-- the one that is dead and blocks it: that is its head again.
-- Parameters: $1 now, $2 ids, in the order in which they are put back; each once.
-- Returns: the ids that were put back.
-- Keeps: laws 4, 6, 7: only what is in none of the other places, or dead. Of two replays of one item at
--   once one wins: the generation is compared and raised. Sorted, so that they cannot wait crosswise.
--   The event is locked first: what a prune has in hand is waited for, and then gone or as before.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_dead_pkey,
--   tenure_domains_pkey, tenure_backlog_pkey. Leases are few and are scanned.
with settled as materialized (
    select e.id, a.nth, e.ordering_key, coalesce(s.generation, 0) as generation
    from (
        select a.id, a.nth from unnest($2::bigint[]) with ordinality as a(id, nth) order by a.id
    ) as a
    cross join lateral (
        select e.id, e.lane, e.available_at, e.ordering_key
        from tenure_events e
        where e.id = a.id
        for key share
    ) e
    left join lateral (
        select s.lane, s.available_at, s.generation, s.turn
        from tenure_setbacks s
        where s.id = a.id
        offset 0
    ) s on true
    where (select r.id
           from tenure_ready r
           where r.lane = coalesce(s.lane, e.lane)
             and r.available_at = coalesce(s.available_at, e.available_at)
             and r.id = e.id) is null
      and (select b.id
           from tenure_backlog b
           where b.domain = tenure_domain(e.ordering_key)
             and b.turn = coalesce(s.turn, e.id)
             and b.id = e.id) is null
      and e.id not in (select i.id from tenure_leases l cross join unnest(l.ids) as i(id))
), blocker as materialized (
    select d.domain, d.head as id, d.paused
    from (
        select id, tenure_domain(ordering_key) as domain
        from settled
        where ordering_key is not null
        order by 2
    ) as s
    cross join lateral (
        select d.domain, d.head, d.paused
        from tenure_domains d
        where d.domain = s.domain and d.blocked and d.head = s.id
        for update
    ) d
), turn as materialized (
    select id, generation,
           case
               when ordering_key is null or is_blocker then null
               when id > 4503599627370496 then nextval('tenure_delivery_id')
               else nextval('tenure_event_id')
           end as turn
    from (
        select id, generation, ordering_key, (id in (select id from blocker)) is true as is_blocker
        from settled
        order by nth
    ) as s
), opened as (
    insert into tenure_setbacks as s (id, generation, available_at, replayed_at, turn)
    select id, generation + 1, coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now()), turn
    from turn
    order by id
    on conflict (id) do update set
        generation = s.generation + 1,
        attempts = 0,
        failures = 0,
        crashes = 0,
        last_error = null,
        lane = null,
        available_at = excluded.available_at,
        replayed_at = excluded.replayed_at,
        turn = coalesce(excluded.turn, s.turn)
        where s.generation = excluded.generation - 1
    returning id, turn
), raised as (
    delete from tenure_dead
    where id = any (array(select id from opened))
), back as materialized (
    select e.id, e.lane, e.ordering_key, coalesce(o.turn, o.id) as turn,
           (o.id in (select id from blocker)) is true as is_blocker,
           e.ordering_key is null or (o.id in (select id from blocker where not paused)) is true as is_ready
    from opened o
    cross join lateral (
        select e.id, e.lane, e.ordering_key from tenure_events e where e.id = o.id offset 0
    ) e
), ready as (
    insert into tenure_ready (lane, available_at, id, domain)
    select lane, coalesce($1::timestamptz, now()), id, tenure_domain(ordering_key)
    from back
    where is_ready
), behind as (
    insert into tenure_backlog (domain, turn, id, lane, available_at)
    select tenure_domain(ordering_key), turn, id, lane, coalesce($1::timestamptz, now())
    from back
    where not is_ready
), unblocked as (
    update tenure_domains d
    set blocked = false, head = case when d.paused then null else d.head end,
        since = case when d.paused then d.since else coalesce($1::timestamptz, now()) end
    from blocker b
    where d.domain = b.domain and (b.id in (select id from opened)) is true
), rang as (
    insert into tenure_arrivals (domain, ordering_key)
    select tenure_domain(ordering_key), ordering_key
    from back
    where not is_blocker and not is_ready
    group by ordering_key
)
select id
from opened
