-- Version 1 of the schema, part 2 of 9: ordering keys. Events of one key are worked one at a time, in
-- order: the first open event is the head, the others wait in the backlog.

-- Ordering keys that have a head or are paused; an idle key has no row. While some of its events are held,
-- the first of them is the head.
create table tenure_keys (
    ordering_key text    primary key not null,
    head         integer,             -- in ready or in a lease, or dead and blocking
    state_since  integer not null,    -- when it got this head or was paused
    is_blocked   integer not null default 0 check (is_blocked in (0, 1)),
    is_paused    integer not null default 0 check (is_paused in (0, 1)),
    check (head is not null or not is_blocked)
) strict, without rowid;

create index tenure_keys_blocked on tenure_keys (ordering_key) where is_blocked;

-- Pending events that are not the head of their key. Inserted and deleted, never updated. Turn is always
-- coalesce(setbacks.turn, id), lane is as in tenure_ready.
create table tenure_backlog (
    ordering_key text    not null,
    turn         integer not null,
    id           integer not null,
    lane         integer not null,
    primary key (ordering_key, turn)
) strict, without rowid;
