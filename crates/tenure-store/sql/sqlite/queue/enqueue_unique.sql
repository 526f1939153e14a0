-- enqueue_unique: the events that have these dedupe keys; an event with a new key is written as in
-- enqueue.sql.
-- Parameters: :keys as a JSON array; :won as a JSON array of [dedupe key, id].
-- Returns: there: key and id of those that exist.
-- Keeps: law 8; one event per dedupe key while the key is kept: the check and the write are in one
--   transaction, and there is one writer.
-- Relies on: the primary key of tenure_dedupe.

-- statement: there
select dedupe.dedupe_key, dedupe.id
from json_each(:keys) as named
cross join tenure_dedupe as dedupe
    on dedupe.dedupe_key = named.value;

-- statement: won
insert into tenure_dedupe (dedupe_key, id)
select value ->> 0, value ->> 1
from json_each(:won);
