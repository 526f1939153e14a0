-- keys: ordering keys that have a head or are paused, by the time at which each got its head or was paused.
-- Among stuck keys the blocked ones come first, so that no limit hides them.
-- Parameters: :stuck, whether to return only stuck keys; :limit; :most, the maximum number of waiting items
--   to count; :long, the time before which a head with items behind it is stuck; one: :key.
-- Returns: ordering_key, the id of the head (the first held item, if any is held), since, blocked, paused,
--   the number of waiting items.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_keys, read whole unless one key is named: its rows have a few bytes each; the primary
--   keys of tenure_setbacks and tenure_backlog. Leases are few and are read once.

-- statement: keys
with held as materialized (
    select cast(run.key as text) as ordering_key, run.value ->> 0 as id
    from tenure_leases as lease, json_each(lease.ids_by_key) as run
), listed as materialized (
    select
        key_row.ordering_key,
        coalesce(held.id, key_row.head) as head,
        key_row.state_since,
        key_row.is_blocked,
        key_row.is_paused
    from tenure_keys as key_row
    left join held
        on held.ordering_key = key_row.ordering_key
)
select
    key_row.ordering_key,
    key_row.head,
    key_row.state_since,
    key_row.is_blocked,
    key_row.is_paused,
    (
        select count(*)
        from (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = key_row.ordering_key
            limit :most
        )
    ) as waiting
from listed as key_row
left join tenure_setbacks as setback
    on setback.id = key_row.head
where not :stuck
    or key_row.is_blocked
    or setback.failures + setback.crashes > 0
    or (
        (key_row.is_paused or (key_row.head is not null and key_row.state_since < :long))
        and exists (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = key_row.ordering_key
        )
    )
order by :stuck and key_row.is_blocked desc, key_row.state_since, key_row.ordering_key
limit :limit;

-- statement: one
select
    key_row.ordering_key,
    coalesce(
        (
            select run.value ->> 0
            from tenure_leases as lease, json_each(lease.ids_by_key) as run
            where run.key = :key
        ),
        key_row.head
    ) as head,
    key_row.state_since,
    key_row.is_blocked,
    key_row.is_paused,
    (
        select count(*)
        from (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = key_row.ordering_key
            limit :most
        )
    ) as waiting
from tenure_keys as key_row
where key_row.ordering_key = :key;
