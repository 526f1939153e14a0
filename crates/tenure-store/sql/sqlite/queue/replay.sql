-- replay: puts settled items back as a new generation. Which are settled is asked of look.sql
--   before.
-- Parameters: :ids as a JSON array; :now.
-- Returns: nothing.
-- Keeps: laws 4, 6: the fence goes on rising and the old tokens stay dead, since no lease is made.
-- Relies on: the primary keys. tenure_ready gets its rows by the statement of settle.

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
