-- record: notes what is added to a table, so that it can be taken away again, and nothing else.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: what was noted is what was added: it is written in the transaction that adds the columns.
-- Relies on: the key.
insert into {tables} (name, description, added)
values ({name}, {description}, {added})
on conflict (name) do update set
    description = excluded.description,
    added = excluded.added,
    finished = false;
