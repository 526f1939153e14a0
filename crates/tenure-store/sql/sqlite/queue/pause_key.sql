-- pause_key: pauses a key. Its head moves from ready into the backlog, by the statements of bury and
-- settle; held items are not interrupted.
-- Parameters: :key, :now.
-- Returns: paused: the head of a key that was not paused before.
-- Keeps: laws 6, 7: in one transaction, and there is one writer.
-- Relies on: the primary key of tenure_keys.

-- statement: paused
insert into tenure_keys as old (ordering_key, state_since, is_paused)
values (:key, :now, 1)
on conflict (ordering_key) do update set
    is_paused = 1,
    state_since = excluded.state_since
    where not old.is_paused
returning head;

-- statement: held_back
update tenure_keys
set head = null
where ordering_key = :key;
