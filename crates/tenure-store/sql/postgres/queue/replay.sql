-- replay: makes settled items pending again as a new generation. An item with a key goes to the tail of its
-- key; only the dead item that blocks the key becomes its head again.
-- Parameters: $1 now, $2 ids, in the order of the replay; each once.
-- Returns: the ids that were replayed.
-- Keeps: laws 4, 6, 7: only items that are done or dead. Of two concurrent replays of one item one wins:
--   the generation is compared and raised. Items are sorted, so that two replays cannot deadlock. The
--   event is locked first: the replay waits for a prune that has locked it, and then finds it deleted or
--   unchanged.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_dead_pkey,
--   tenure_keys_pkey, tenure_backlog_pkey. Leases are few and are scanned.
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
           where b.key_hash = tenure_key_hash(e.ordering_key)
             and b.turn = coalesce(s.turn, e.id)
             and b.id = e.id) is null
      and e.id not in (select i.id from tenure_leases l cross join unnest(l.ids) as i(id))
), blocker as materialized (
    select k.key_hash, k.head as id, k.is_paused
    from (
        select id, tenure_key_hash(ordering_key) as key_hash
        from settled
        where ordering_key is not null
        order by 2
    ) as s
    cross join lateral (
        select k.key_hash, k.head, k.is_paused
        from tenure_keys k
        where k.key_hash = s.key_hash and k.is_blocked and k.head = s.id
        for update
    ) k
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
    select id, generation + 1, coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp()), turn
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
           e.ordering_key is null or (o.id in (select id from blocker where not is_paused)) is true as is_ready
    from opened o
    cross join lateral (
        select e.id, e.lane, e.ordering_key from tenure_events e where e.id = o.id offset 0
    ) e
), ready as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, coalesce($1::timestamptz, statement_timestamp()), id, tenure_key_hash(ordering_key)
    from back
    where is_ready
), behind as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(ordering_key), turn, id, lane, coalesce($1::timestamptz, statement_timestamp())
    from back
    where not is_ready
), unblocked as (
    update tenure_keys k
    set is_blocked = false, head = case when k.is_paused then null else k.head end,
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from blocker b
    where k.key_hash = b.key_hash and (b.id in (select id from opened)) is true
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select tenure_key_hash(ordering_key), ordering_key
    from back
    where not is_blocker and not is_ready
    group by ordering_key
)
select id
from opened
