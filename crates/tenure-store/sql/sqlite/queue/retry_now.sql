-- retry_now: makes pending items due. Statements of settle.sql and bury.sql write the ready rows and the
-- journal, which records the order as a lease of the operator that ends at once.
-- Parameters: :ids as a JSON array; :now.
-- Returns: answers: per id, the answer; 'due_now' for an item that is to be changed.
-- Keeps: laws 6, 7: only items in tenure_ready change, and their counters stay.
-- Relies on: the primary keys. The ids of all leases are read once; leases are few.

-- statement: answers
select
    named.value as id,
    case
        when event.id is null then 'not_found'
        when ready.id is not null then iif(ready.available_at > :now, 'due_now', 'already_due')
        when behind.id is not null then 'behind'
        when dead.id is not null then 'dead'
        when event.id in (
            select held.value
            from tenure_leases as lease, json_each(lease.ids) as held
        ) then 'held'
        else 'done'
    end as answer
from json_each(:ids) as named
left join tenure_events as event
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

-- statement: setbacks
insert into tenure_setbacks as old (id, available_at)
select value, :now
from json_each(:ids)
where true
on conflict (id) do update set available_at = excluded.available_at;
