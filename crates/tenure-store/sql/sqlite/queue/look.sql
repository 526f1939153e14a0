-- look: where items are now, and what a token has said of them.
-- Parameters: :ids as a JSON array; :token.
-- Returns: place: id and state of each item that exists; said: id and outcome, for each time that
--   the token ended a hold on one of these items.
-- Keeps: law 9: what had taken effect is found in the journal.
-- Relies on: the primary keys; tenure_settled_token. The ids of all leases are read once: they are
--   few rows.

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
