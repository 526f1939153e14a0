-- adopted_table: creates a hand-written outbox, without Tenure's columns, for the adoption.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
create table outbox (
    id         integer primary key,
    topic      text    not null,
    payload    text    not null,
    priority   integer not null default 0,
    status     text    not null default 'PENDING',
    created_at integer not null
) strict;
