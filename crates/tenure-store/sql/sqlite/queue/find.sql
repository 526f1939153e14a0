-- find: all facts of items.
-- Parameters: :ids as a JSON array.
-- Returns: the facts of each item that exists, in any order; the columns of the view tenure_outbox, with
--   the lane in place of queue and priority; a delivery has a source and no payload.
-- Keeps: no token is shown.
-- Relies on: the primary keys; tenure_settled_id_range. The ids of all leases are read once; leases are
--   few.

-- statement: find
with held as materialized (
    select
        cast(held_id.value as integer) as id,
        lease.fence,
        lease.holder,
        lease.claimed_at,
        lease.locked_until
    from tenure_leases as lease, json_each(lease.ids) as held_id
    where held_id.value in (select value from json_each(:ids))
)
select
    event.id,
    coalesce(setback.available_at, event.available_at) as available_at,
    event.lane,
    event.event_id,
    event.topic,
    event.ordering_key,
    event.encoding,
    event.headers,
    event.payload,
    coalesce(setback.generation, 0) as generation,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    event.source,
    queue.name as queue,
    event.created_at,
    case
        when ready.id is not null or behind.id is not null then 'pending'
        when dead.id is not null then 'dead'
        when held.id is not null then 'claimed'
        else 'done'
    end as state,
    setback.last_error,
    held.holder,
    held.fence,
    held.claimed_at,
    held.locked_until,
    case
        when ready.id is null and behind.id is null and dead.id is null and held.id is null then (
            select settled.settled_at
            from tenure_settled as settled indexed by tenure_settled_id_range
            where settled.last_id between event.id and event.id | 1023
                and settled.first_id <= event.id
                and settled.outcome = 'done'
                and instr(',' || trim(settled.ids, '[]') || ',', ',' || event.id || ',') > 0
            order by settled.entry desc
            limit 1
        )
    end as done_at,
    dead.dead_at,
    dead.reason as dead_reason
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_queues as queue
    on queue.number = event.lane / 16
left join tenure_setbacks as setback
    on setback.id = named.value
left join tenure_ready as ready
    on ready.lane = coalesce(setback.lane, event.lane)
    and ready.available_at = coalesce(setback.available_at, event.available_at)
    and ready.id = event.id
left join tenure_backlog as behind
    on behind.ordering_key = event.ordering_key
    and behind.turn = coalesce(setback.turn, event.id)
left join tenure_dead as dead
    on dead.id = named.value
left join held
    on held.id = named.value;
