-- prune: deletes settled items past their retention; and of the journal what is old and names
--   nothing that is kept.
-- Parameters: :done and :dead, the moments before which an item must have been done or dead; :old,
--   the earlier of both; :limit; :ids as a JSON array; :named, whether these are from the lines, so
--   that what was not replayed is done for long enough; :line, :lo, :hi of a journal row; :items, how
--   many, and :kind, event or delivery.
-- Returns: lines: the oldest journal rows of done items: line, settled_at, ids; dead: ids of the
--   oldest dead items; settled: of the named items those that may be deleted, and whether they are
--   dead; sources: the events of the named deliveries; kept: of the named items those that exist;
--   others: the oldest journal rows of all other words, and those that prune is through with.
-- Keeps: laws 4, 6: only what stands in no place, or in tenure_dead, and for long enough: the last
--   done row of an item that was replayed counts. A dead item that blocks its domain is kept: the
--   others wait for an operator to decide about it. A journal row stays for the timeline of an item
--   that is kept, up to the longer retention; one that is gone was past it. An event is kept while a
--   delivery of it is.
-- Relies on: tenure_settled_done, tenure_settled_other and tenure_dead_at, from the oldest; the
--   primary keys; tenure_events_source; tenure_dedupe_id; tenure_settled_span for items that were
--   replayed, and events that had deliveries. The ids of all leases are read once: they are few rows.

-- statement: lines
select line, settled_at, ids
from tenure_settled indexed by tenure_settled_done
where outcome = 'done'
    and spent = 0
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
        cross join tenure_domains as domain
            on domain.ordering_key = event.ordering_key
        where event.id = tenure_dead.id
            and domain.head = event.id
            and domain.blocked
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
                from tenure_settled as settled indexed by tenure_settled_span
                where settled.hi between event.id and event.id | 1023
                    and settled.lo <= event.id
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

-- statement: keys
delete from tenure_dedupe
where key in (
    select dedupe.key
    from json_each(:ids) as named
    cross join tenure_dedupe as dedupe indexed by tenure_dedupe_id
        on dedupe.id = named.value
);

-- statement: counted
update tenure_ids
set vacant = vacant + :items
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
where line = :line;

-- statement: spent
update tenure_settled
set
    spent = 1,
    ids = :ids,
    lo = :lo,
    hi = :hi
where line = :line;

-- statement: others
select line
from tenure_settled indexed by tenure_settled_other
where (outcome <> 'done' or spent = 1)
    and settled_at < :old
order by settled_at
limit :limit;
