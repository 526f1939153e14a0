-- bury: settles one item as dead, now. look.sql first finds its state; statements of settle.sql then end its
-- lease.
-- Parameters: :id.
-- Returns: lease: the lease that holds the item; key: its ordering key.
-- Keeps: laws 5, 6: a pending item is claimed first (its row in ready or in the backlog is deleted, and a
--   fence is drawn as in claim.sql), then settled. If it was the head, its key gets the next one.
-- Relies on: the primary keys; all leases are scanned, they are few.

-- statement: taken
delete from tenure_ready
where (lane, available_at, id) = (
    select
        coalesce(setback.lane, event.lane),
        coalesce(setback.available_at, event.available_at),
        event.id
    from tenure_events as event
    left join tenure_setbacks as setback
        on setback.id = event.id
    where event.id = :id
);

-- statement: left
delete from tenure_backlog
where (ordering_key, turn) = (
    select event.ordering_key, coalesce(setback.turn, event.id)
    from tenure_events as event
    left join tenure_setbacks as setback
        on setback.id = event.id
    where event.id = :id
);

-- statement: key
select ordering_key
from tenure_events
where id = :id;

-- statement: lease
select token, fence, holder, claimed_at, locked_until, ids, ids_by_key
from tenure_leases
where instr(',' || trim(ids, '[]') || ',', ',' || :id || ',') > 0;
