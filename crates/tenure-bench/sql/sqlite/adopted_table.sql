-- adopted_table: an outbox written by hand, with nothing of ours, that is to be adopted.
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
