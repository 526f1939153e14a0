-- Version 1 of the schema, part 2 of 9: ordering keys. Events of one key are worked one at a time, in order:
-- its first event that is neither done nor dead is its head, the others wait in its backlog.

-- The hash of an ordering key, which stands for it in the narrow tables. Two keys with the same hash share
-- their order, and nothing else goes wrong; with ten million keys the odds of any such pair are three in a
-- million.
create function tenure_key_hash(ordering_key text) returns bigint
language sql immutable strict parallel safe as $$select hashtextextended(ordering_key, 0)$$;

-- Ordering keys and their heads. Written by the statement that makes or ends a head, under the lock of the
-- row; never in a producer's transaction. Room on the page, and no index on what changes.
create table tenure_keys (
    key_hash     bigint      primary key,
    head         bigint,                                -- in ready or in a lease, or dead and blocking
    state_since  timestamptz not null,                  -- of the head, the pause or the idleness
    is_blocked   boolean     not null default false,    -- its head is dead and blocks it
    is_paused    boolean     not null default false,    -- then only what is held is its head
    ordering_key text        not null
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.05
);

-- Events that wait for their turn. Inserted and deleted, never updated. Turn is always
-- coalesce(setbacks.turn, id), lane and available_at are as in tenure_ready.
create table tenure_backlog (
    key_hash     bigint      not null,
    turn         bigint      not null,
    id           bigint      not null,
    available_at timestamptz not null,
    lane         int         not null,
    primary key (key_hash, turn)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Keys that may need a head. A statement adds a row when it puts an event into a backlog without making
-- it the head, or leaves a key without one. The next claim promotes the first event of each of these
-- keys (promote.sql). The order of the rows says nothing.
create sequence tenure_arrival cache 50;
create table tenure_arrivals (
    arrival      bigint      primary key default nextval('tenure_arrival'),
    key_hash     bigint      not null,
    ordering_key text        not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
alter sequence tenure_arrival owned by tenure_arrivals.arrival;

-- Rows that strict producers of one key lock, to wait for each other and for nothing else.
create table tenure_strict_keys (
    key_hash bigint primary key
);
