-- keys: ordering keys that have a head or are paused, by the time at which each got its head or was paused.
-- Among stuck keys the blocked ones come first, so that no limit hides them. Keys with arrivals but without
-- a head come last.
-- Parameters: $1 whether to return only stuck keys, $2 limit, $3 one key (null: any), $4 maximum number of
--   waiting items to count and of arrivals to read, $5 age in microseconds from which a head with items
--   behind it is stuck.
-- Returns: ordering_key, the id of the head (the first held item, if any is held), since, blocked, paused,
--   the number of waiting items; the time; whether the key is sorted before the others.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_keys, read whole unless one key is named; tenure_backlog_pkey, tenure_setbacks_pkey,
--   tenure_arrivals_pkey, from the oldest. Leases are few and are scanned.
with held as materialized (
    select i.key_hash, min(i.id) as id
    from tenure_leases l
    cross join unnest(l.ids, l.key_hashes) as i(id, key_hash)
    where l.key_hashes is not null and i.key_hash is not null
    group by i.key_hash
), listed as materialized (
    select k.key_hash, k.ordering_key, k.head, k.state_since, k.is_blocked, k.is_paused,
           $1::boolean and k.is_blocked as is_first
    from tenure_keys k
    left join lateral (
        select s.failures + s.crashes as setbacks from tenure_setbacks s where s.id = k.head offset 0
    ) s on true
    where (k.key_hash = tenure_key_hash($3::text) or ($3::text is null and (k.head is not null or k.is_paused)))
      and (not $1::boolean or k.is_blocked or s.setbacks > 0
           or ((k.is_paused or (k.head is not null and k.state_since < now() - $5::bigint * interval '1 us'))
               and (select true from tenure_backlog b where b.key_hash = k.key_hash limit 1)))
    order by is_first desc, k.state_since, k.ordering_key
    limit $2
), arrived as materialized (
    select a.key_hash, min(a.ordering_key) as ordering_key
    from (
        select key_hash, ordering_key
        from tenure_arrivals
        where not $1::boolean and $3::text is null
        order by arrival
        limit $4
    ) as a
    where (select k.head is not null or k.is_paused from tenure_keys k where k.key_hash = a.key_hash) is not true
    group by a.key_hash
), found as (
    select k.key_hash, k.ordering_key, coalesce(h.id, k.head) as head, k.state_since, k.is_blocked,
           k.is_paused, k.is_first
    from listed k
    left join held h on h.key_hash = k.key_hash
    union all
    select a.key_hash, a.ordering_key, null, null, false, false, false
    from arrived a
    where (select true from tenure_backlog b where b.key_hash = a.key_hash limit 1)
    union all
    select tenure_key_hash($3::text), $3::text, null, null, false, false, false
    where $3::text is not null and not exists (select from listed)
    order by is_first desc, state_since, ordering_key
    limit $2
)
select f.ordering_key, f.head, f.state_since, f.is_blocked, f.is_paused,
       (select count(*)
        from (select from tenure_backlog b where b.key_hash = f.key_hash limit $4) as b) as waiting,
       now() as now, f.is_first
from found f
order by f.is_first desc, f.state_since, f.ordering_key
