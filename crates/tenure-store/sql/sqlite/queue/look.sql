-- look: the current states of items, and the outcomes that a token reported for them.
-- Parameters: :ids as a JSON array; :token.
-- Returns: place: id and state of each item that exists; said: id and outcome, for each lease on one of
--   these items that the token ended.
-- Keeps: law 9: the journal shows the settles that took effect.
-- Relies on: the primary keys; tenure_settled_token. The ids of all leases are read once; leases are few.

-- statement: place
select
    event.id,
    case
        when ready.id is not null or behind.id is not null then 'pending'
        when dead.id is not null then 'dead'
        when event.id in (
            select held.value
            from tenure_leases as lease, json_each(lease.ids) as held
        ) then 'claimed'
        else 'done'
    end as state
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
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
    on dead.id = named.value;

-- statement: said
select settled_id.value as id, settled.outcome
from tenure_settled as settled indexed by tenure_settled_token,
    json_each(settled.ids) as settled_id
where settled.token = :token
    and settled_id.value in (select value from json_each(:ids));
