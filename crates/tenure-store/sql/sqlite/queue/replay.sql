-- replay: makes settled items pending again as a new generation. look.sql finds the settled ones before.
-- Parameters: :ids as a JSON array; :now; :numbers, the number of turns to draw, and :kind, event or
--   delivery: each kind has its own ids; :turns, a JSON array of [id, turn].
-- Returns: keys: for items with a key: id, key, whether the key has a head, and whether the item is that
--   head, dead and blocking; drawn: the last number.
-- Keeps: laws 4, 6, 7: an item with a key goes to the tail of its key, with a turn above all ids so far;
--   the item that blocks its key keeps its turn, which is the first. Fences continue to rise and old tokens
--   stay invalid, because no lease is created.
-- Relies on: the primary keys. The statements of settle write the rows of tenure_ready and tenure_backlog.

-- statement: opened
insert into tenure_setbacks as old (id, generation, available_at, replayed_at)
select value, 1, :now, :now
from json_each(:ids)
where true
on conflict (id) do update set
    generation = old.generation + 1,
    attempts = 0,
    failures = 0,
    crashes = 0,
    lane = null,
    available_at = excluded.available_at,
    replayed_at = excluded.replayed_at,
    last_error = null;

-- statement: raised
delete from tenure_dead
where id in (select value from json_each(:ids));

-- statement: keys
select
    event.id,
    event.ordering_key,
    key_row.head is not null as has_head,
    coalesce(key_row.is_blocked and key_row.head = event.id, 0) as is_blocking
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_keys as key_row
    on key_row.ordering_key = event.ordering_key
where event.ordering_key is not null;

-- statement: drawn
update tenure_ids
set
    last_id = last_id + :numbers,
    ids_without_item = ids_without_item + :numbers
where kind = :kind
returning last_id;

-- statement: turns
insert into tenure_setbacks as old (id, turn)
select value ->> 0, value ->> 1
from json_each(:turns)
where true
on conflict (id) do update set
    turn = excluded.turn;
