-- reap: ends lapsed leases. The statements of settle write the new states of their items.
-- Parameters: :now, :reached whether a term that ends exactly now is over, :limit (leases); :tokens and
--   :ids as JSON arrays.
-- Returns: lapsed: the lapsed leases, the oldest first; counters: for each item its lane at enqueue, its
--   lapses so far, and the time from which it could be claimed.
-- Keeps: laws 5, 6: a lease that is live at :now is not among them.
-- Relies on: no index for lapsed: leases are few, and an index on locked_until would cost every renewal
--   more; the primary keys.

-- statement: lapsed
select token, fence, holder, claimed_at, locked_until, ids, ids_by_key
from tenure_leases
where locked_until < :now
    or (:reached and locked_until = :now)
order by locked_until, token
limit :limit;

-- statement: end_leases
delete from tenure_leases
where token in (select value from json_each(:tokens));

-- statement: counters
select
    event.id,
    event.lane,
    coalesce(setback.crashes, 0) as crashes,
    coalesce(setback.available_at, event.available_at) as available_at
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_setbacks as setback
    on setback.id = named.value;
