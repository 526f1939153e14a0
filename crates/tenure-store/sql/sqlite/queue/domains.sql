-- domains: ordering keys that have something open or are paused, those first that have had their
--   head, or have been paused, for longest. Of those that stand still, first the blocked ones, so
--   that no limit hides them.
-- Parameters: :stuck, whether only those that stand still; :limit; :most, how far to count what waits;
--   :long, the moment before which a head with something behind it stands still; one: :key.
-- Returns: ordering_key, the id of the head (the first that is held, while something is), since,
--   blocked, paused, how many wait.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_domains, read whole unless one is asked for: a row there is a few bytes; the
--   primary keys of tenure_setbacks and tenure_backlog. Leases are few and are read once.

-- statement: domains
with held as materialized (
    select cast(run.key as text) as ordering_key, run.value ->> 0 as id
    from tenure_leases as lease, json_each(lease.domains) as run
), domain as materialized (
    select
        domain.ordering_key,
        coalesce(held.id, domain.head) as head,
        domain.since,
        domain.blocked,
        domain.paused
    from tenure_domains as domain
    left join held
        on held.ordering_key = domain.ordering_key
)
select
    domain.ordering_key,
    domain.head,
    domain.since,
    domain.blocked,
    domain.paused,
    (
        select count(*)
        from (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = domain.ordering_key
            limit :most
        )
    ) as waiting
from domain
left join tenure_setbacks as setback
    on setback.id = domain.head
where not :stuck
    or domain.blocked
    or setback.failures + setback.crashes > 0
    or (
        (domain.paused or (domain.head is not null and domain.since < :long))
        and exists (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = domain.ordering_key
        )
    )
order by :stuck and domain.blocked desc, domain.since, domain.ordering_key
limit :limit;

-- statement: one
select
    domain.ordering_key,
    coalesce(
        (
            select run.value ->> 0
            from tenure_leases as lease, json_each(lease.domains) as run
            where run.key = :key
        ),
        domain.head
    ) as head,
    domain.since,
    domain.blocked,
    domain.paused,
    (
        select count(*)
        from (
            select 1
            from tenure_backlog as behind
            where behind.ordering_key = domain.ordering_key
            limit :most
        )
    ) as waiting
from tenure_domains as domain
where domain.ordering_key = :key;
