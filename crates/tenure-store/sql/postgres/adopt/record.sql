-- record: records the columns and indexes that are added to a table, so that exactly these can be removed
-- again.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the record agrees with the table: it is written in the transaction that adds the columns.
-- Relies on: the key.
insert into {tables} (name, description, added)
values ({name}, {description}, {added})
on conflict (name) do update set
    description = excluded.description,
    added = excluded.added,
    is_finished = false;
