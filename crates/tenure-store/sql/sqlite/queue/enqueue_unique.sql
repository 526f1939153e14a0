-- enqueue_unique: which event has a dedupe key; an event with a new one is written as enqueue.sql
--   does.
-- Parameters: :keys as a JSON array; :won as a JSON array of [dedupe key, id].
-- Returns: there: key and id of those that exist.
-- Keeps: law 8; one event per key while it is kept: the look and the write are in one transaction,
--   and there is one writer.
-- Relies on: the primary key of tenure_dedupe.

-- statement: there
select dedupe.key, dedupe.id
from json_each(:keys) as named
cross join tenure_dedupe as dedupe
    on dedupe.key = named.value;

-- statement: won
insert into tenure_dedupe (key, id)
select value ->> 0, value ->> 1
from json_each(:won);
