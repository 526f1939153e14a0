-- Version 1 of the schema, part 2 of 9: ordering keys. Events of one key are worked one at a time, in
-- order: the first open event is the head, the others wait in the backlog.

-- The hash of an ordering key, which replaces it in the narrow tables. Two keys with the same hash are
-- worked as one key; nothing else goes wrong. Among ten million keys, the probability of such a pair is
-- three in a million.
create function tenure_key_hash(ordering_key text) returns bigint
language sql immutable strict parallel safe as $$select hashtextextended(ordering_key, 0)$$;

-- Ordering keys and their heads. The statement that creates or ends a head writes the row, under its lock;
-- a producer never does. 40 % of each page is free, and no indexed column changes (HOT updates).
create table tenure_keys (
    key_hash     bigint      primary key,
    head         bigint,                                -- in ready or in a lease, or dead and blocking
    state_since  timestamptz not null,                  -- when it got this head, was paused or became idle
    is_blocked   boolean     not null default false,    -- its head is dead and blocks it
    is_paused    boolean     not null default false,    -- then it has a head only if that is held or blocks
    ordering_key text        not null
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.05
);
-- The columns of this index change only when a key is blocked or unblocked.
create index tenure_keys_blocked on tenure_keys (key_hash) where is_blocked;

-- Pending events that are not the head of their key. Inserted and deleted, never updated. Turn is always
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

-- Keys that may need a head. A statement adds a row when it puts an event into a backlog without making it
-- the head, or leaves a key without a head. The next claim makes the first event of each of these keys its
-- head (promote.sql). The order of the rows has no meaning.
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

-- Strict producers of a key lock its row here, so that they wait for each other and for nothing else.
create table tenure_strict_keys (
    key_hash bigint primary key
);
