-- tables: the tables of the bare loops. `bench_row` is the outbox that a careful engineer writes by
-- hand; `bench_event` and `bench_ready` are for the bare two-table insert; `bench_attempt` is a
-- bare record of calls; `bench_checkpoint` has checkpoints with a lock that ends by time.
-- Parameters: none.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
create table bench_row (
    id           integer primary key,
    topic        text    not null,
    payload      text    not null,
    headers      text,
    status       text    not null default 'PENDING',
    created_at   integer not null,
    available_at integer not null,
    claimed_at   integer,
    claimed_by   text,
    locked_until integer,
    lock_token   text,
    attempts     integer not null default 0,
    last_error   text,
    published_at integer
) strict;
create index bench_row_pending on bench_row (available_at, id) where status = 'PENDING';

create table bench_event (
    id         integer primary key,
    topic      text    not null,
    payload    text    not null check (json_valid(payload)),
    created_at integer not null
) strict;
create table bench_ready (
    lane         integer not null,
    available_at integer not null,
    id           integer not null,
    primary key (lane, available_at, id)
) strict, without rowid;

create table bench_attempt (
    id       integer primary key,
    began_at integer not null,
    ended_at integer,
    status   integer,
    outcome  text
) strict;

create table bench_checkpoint (
    id             integer primary key,
    matrix_id      text not null,
    chunk_hash     text not null,
    last_synced_at integer,
    row_count      integer,
    locked_until   integer,
    locked_by      text,
    completed_at   integer,
    failed_at      integer,
    error_message  text,
    unique (matrix_id, chunk_hash)
) strict;
