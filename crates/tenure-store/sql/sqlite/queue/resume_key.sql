-- resume_key: resumes a paused key: without a head, its first item becomes the head, by the statements of
-- settle; a key with a head (held, or dead and blocking) keeps the time of the pause as state_since.
-- Parameters: :key, :now.
-- Returns: whether the key has a head; no row: it is not paused.
-- Keeps: laws 1, 6, 7: in one transaction, and there is one writer.
-- Relies on: the primary key of tenure_keys.

-- statement: paused
select head is not null as has_head
from tenure_keys
where ordering_key = :key
    and is_paused;

-- statement: resumed
update tenure_keys
set
    is_paused = 0,
    state_since = iif(head is null, :now, state_since)
where ordering_key = :key;
