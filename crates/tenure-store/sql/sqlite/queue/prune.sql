-- prune: deletes settled items past their retention, and old journal rows that name no retained item.
-- Parameters: :done and :dead, the times before which an item must have been settled as done or dead; :old,
--   the earlier of both; :limit; :ids as a JSON array; :named, whether journal rows of this round name
--   these ids, so that an item that was not replayed has been done for long enough; :entry, :first_id,
--   :last_id of a journal row; :items, their number, and :kind, event or delivery.
-- Returns: entries: the oldest journal rows of done items: entry, settled_at, ids; dead: ids of the oldest
--   dead items; settled: the named items that may be deleted, and whether they are dead; sources: the
--   events of the named deliveries; kept: the named items that exist; others: the oldest journal rows with
--   any other outcome, and those that prune has marked.
-- Keeps: laws 4, 6: only items that have been done or dead for long enough; for a replayed item its last
--   done row counts, and if that was deleted, the item is past its retention. A dead item that blocks its
--   key is kept: an operator must decide about it. A journal row stays for the timeline of a retained item,
--   up to the longer retention. An event is kept as long as its deliveries.
-- Relies on: tenure_settled_done, tenure_settled_other and tenure_dead_at, from the oldest; the primary
--   keys; tenure_events_source; tenure_dedupe_id; tenure_settled_id_range for items that were replayed, and
--   events that had deliveries. The ids of all leases are read once; leases are few.

-- statement: entries
select entry, settled_at, ids
from tenure_settled indexed by tenure_settled_done
where outcome = 'done'
    and is_pruned = 0
    and settled_at < :done
order by settled_at
limit :limit;

-- statement: dead
select id
from tenure_dead indexed by tenure_dead_at
where dead_at < :dead
    and not exists (
        select 1
        from tenure_events as event
        cross join tenure_keys as key_row
            on key_row.ordering_key = event.ordering_key
        where event.id = tenure_dead.id
            and key_row.head = event.id
            and key_row.is_blocked
    )
    and not exists (select 1 from tenure_events as owed where owed.source = tenure_dead.id)
order by dead_at
limit :limit;

-- statement: settled
select event.id, dead.id is not null as is_dead
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
    on dead.id = named.value
where ready.id is null
    and behind.id is null
    and event.id not in (
        select held.value
        from tenure_leases as lease, json_each(lease.ids) as held
    )
    and not exists (select 1 from tenure_events as owed where owed.source = event.id)
    and case
        when dead.id is not null then dead.dead_at < :dead
        when :named and setback.replayed_at is null then true
        else coalesce(
            (
                select max(settled.settled_at)
                from tenure_settled as settled indexed by tenure_settled_id_range
                where settled.last_id between event.id and event.id | 1023
                    and settled.first_id <= event.id
                    and settled.outcome = 'done'
                    and instr(',' || trim(settled.ids, '[]') || ',', ',' || event.id || ',') > 0
            ) < :done,
            true
        )
    end;

-- statement: sources
select distinct event.source
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
where event.source is not null;

-- statement: events
delete from tenure_events
where id in (select value from json_each(:ids));

-- statement: setbacks
delete from tenure_setbacks
where id in (select value from json_each(:ids));

-- statement: buried
delete from tenure_dead
where id in (select value from json_each(:ids));

-- statement: dedupe_keys
delete from tenure_dedupe
where dedupe_key in (
    select dedupe.dedupe_key
    from json_each(:ids) as named
    cross join tenure_dedupe as dedupe indexed by tenure_dedupe_id
        on dedupe.id = named.value
);

-- statement: counted
update tenure_ids
set ids_without_item = ids_without_item + :items
where kind = :kind;

-- statement: attempts
delete from tenure_delivery_attempts
where delivery in (select value from json_each(:ids));

-- statement: kept
select event.id
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value;

-- statement: ended
delete from tenure_settled
where entry = :entry;

-- statement: pruned
update tenure_settled
set
    is_pruned = 1,
    ids = :ids,
    first_id = :first_id,
    last_id = :last_id
where entry = :entry;

-- statement: others
select entry
from tenure_settled indexed by tenure_settled_other
where (outcome <> 'done' or is_pruned = 1)
    and settled_at < :old
order by settled_at
limit :limit;
