-- record: records the columns and indexes that are added to a table, so that exactly these can be removed
-- again.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: the record agrees with the table: it is written in the transaction that adds the columns.
-- Relies on: the key.
-- statement: record
insert into {tables} (name, description, added, adopted_at)
values ({name}, {description}, {added},
        cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000)
on conflict (name) do update set
    description = excluded.description,
    added = excluded.added,
    is_finished = 0;
