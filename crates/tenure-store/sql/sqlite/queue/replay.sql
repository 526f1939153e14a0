-- replay: puts settled items back as a new generation. Which are settled is asked of look.sql
--   before.
-- Parameters: :ids as a JSON array; :now; :numbers, how many turns to draw, and :kind, event or
--   delivery: each has ids of its own; :turns, a JSON array of [id, turn].
-- Returns: domains: of those that have a key: id, key, whether their domain has a head, and whether it
--   is this one, dead and blocking; drawn: the last number.
-- Keeps: laws 4, 6, 7: one that has a key goes to the tail of its domain, by a number that comes after
--   all ids so far; the one that blocks its domain keeps its turn, which is the first. The fence goes on rising and the old tokens stay dead, since no lease is made.
-- Relies on: the primary keys. tenure_ready and tenure_backlog get their rows by the statements of
--   settle.

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

-- statement: domains
select
    event.id,
    event.ordering_key,
    domain.head is not null as has_head,
    coalesce(domain.blocked and domain.head = event.id, 0) as is_blocking
from json_each(:ids) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_domains as domain
    on domain.ordering_key = event.ordering_key
where event.ordering_key is not null;

-- statement: drawn
update tenure_ids
set
    last_id = last_id + :numbers,
    vacant = vacant + :numbers
where kind = :kind
returning last_id;

-- statement: turns
insert into tenure_setbacks as old (id, turn)
select value ->> 0, value ->> 1
from json_each(:turns)
where true
on conflict (id) do update set
    turn = excluded.turn;
