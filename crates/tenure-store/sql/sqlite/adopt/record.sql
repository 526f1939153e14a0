-- record: notes what is added to a table, so that it can be taken away again, and nothing else.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: what was noted is what was added: it is written in the transaction that adds the columns.
-- Relies on: the key.
-- statement: record
insert into {tables} (name, description, added, adopted_at)
values ({name}, {description}, {added},
        cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000)
on conflict (name) do update set
    description = excluded.description,
    added = excluded.added,
    finished = 0;
