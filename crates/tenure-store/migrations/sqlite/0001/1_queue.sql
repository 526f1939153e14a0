-- Version 1 of the schema, part 1 of 9: the queue. An item (an event or a delivery) is in exactly one place:
-- tenure_ready, tenure_backlog, one row of tenure_leases, tenure_dead, or none of them: then it is done.
-- Wide rows are never updated; a lease is one row per claim. Times are microseconds since 1970.

-- Named queues of events. A lane is number * 16 + (7 - priority); number * 16 + 8 is for the items of the
-- queue that must be claimed alone. A row with a topic has the lanes of that topic of the queue, which only
-- workers that take the topic read: a claim adds it when it comes across an event of a topic that its worker
-- does not take. Endpoints take their numbers from the same range.
create table tenure_queues (
    number    integer primary key check (number >= 0),
    name      text    not null check (length(cast(name as blob)) between 1 and 255),
    topic     text    not null default '' check (length(cast(topic as blob)) <= 255),
    -- Rules of the queue, in its row without a topic; null: as in the settings of the worker.
    term_ms       integer check (term_ms between 1 and 86400000),
    max_retries   integer check (max_retries between 0 and 4294967295),
    retry_base_ms integer check (retry_base_ms between 1 and 2592000000),
    retry_cap_ms  integer check (retry_cap_ms between 1 and 2592000000),
    is_paused integer not null default 0 check (is_paused in (0, 1)),
    unique (name, topic)
) strict;

insert into tenure_queues (number, name)
values (0, 'default');

-- One row: the last fence that was drawn, by claims of the queue and of lease tables.
create table tenure_fence (
    singleton integer primary key check (singleton = 1),
    fence     integer not null check (fence >= 0)
) strict;

insert into tenure_fence (singleton, fence)
values (1, 0);

-- The last id given to an event and to a delivery, and the number of ids without an item: the item was
-- pruned, or the id was drawn as a turn. All other ids have an item.
create table tenure_ids (
    kind             text    primary key not null check (kind in ('event', 'delivery')),
    last_id          integer not null,
    ids_without_item integer not null default 0 check (ids_without_item >= 0)
) strict, without rowid;

insert into tenure_ids (kind, last_id)
values ('event', 0), ('delivery', 4503599627370496);

-- Events and deliveries. Append-only: never updated, deleted only by prune. A delivery has a source (its
-- event), no payload of its own, and an id above 2^52. An id is never reused, because the journal names it;
-- tenure_ids has the last one. The wide columns come last, so that SQLite can read the others without them.
create table tenure_events (
    id           integer primary key,
    lane         integer not null check (lane >= 0 and lane % 16 < 8),
    created_at   integer not null,
    available_at integer not null,    -- as enqueued; a later one is in tenure_setbacks
    source       integer,             -- of a delivery: its event
    event_id     blob    not null check (length(event_id) = 16),
    topic        text    not null check (length(cast(topic as blob)) between 1 and 255),
    -- Of a delivery: the endpoint's name, a slash, and the event's key.
    ordering_key text    check (
        length(cast(ordering_key as blob)) between 1 and iif(source is null, 255, 320)
    ),
    encoding     text    check (encoding = 'base64'),
    headers      text    check (json_type(headers) = 'object'),
    payload      text    check (json_valid(payload) and length(cast(payload as blob)) <= 1048576),
    check ((source is null) = (payload is not null)),
    check ((source is null) = (id <= 4503599627370496))
) strict;

create index tenure_events_key on tenure_events (ordering_key) where ordering_key is not null;
-- At most one delivery per event and endpoint.
create unique index tenure_events_source on tenure_events (source, lane / 16)
where source is not null;

-- Items that may be claimed at available_at: those without a key, and the head of each key. Inserted and
-- deleted, never updated. Lane and available_at always equal coalesce(setbacks, events) of the same id, so
-- that the primary key also finds a row by its id.
create table tenure_ready (
    lane         integer not null,
    available_at integer not null,
    id           integer not null,
    primary key (lane, available_at, id)
) strict, without rowid;

-- One row per claim. ids is a JSON array, ascending, without spaces; ids_by_key is a JSON object of arrays:
-- the ids of each key; null: no item has a key.
create table tenure_leases (
    token        text    primary key not null,
    fence        integer not null,
    holder       text    not null check (holder <> ''),
    claimed_at   integer not null,
    locked_until integer not null,
    ids          text    not null check (json_array_length(ids) > 0),
    ids_by_key   text
) strict;

-- The journal of ended leases: one row per settle, token and outcome. It has the timelines of items and the
-- answers to repeated settles. first_id and last_id bound the ids, which have the form of those in a lease.
-- The ids of a row lie within one block of 1024, so that all rows that name an id are in a short range of
-- last_id.
create table tenure_settled (
    entry      integer primary key,
    token      text    not null,
    outcome    text    not null check (
        outcome in ('done', 'retry', 'dead', 'release', 'lapsed', 'buried')
    ),
    holder     text    not null,
    fence      integer not null,
    claimed_at integer not null,
    settled_at integer not null,
    first_id   integer not null,
    last_id    integer not null,
    is_pruned  integer not null default 0 check (is_pruned in (0, 1)),    -- kept only for retained items
    ids        text    not null,
    check (first_id <= last_id and first_id >> 10 = last_id >> 10)
) strict;

create index tenure_settled_token on tenure_settled (token);
create index tenure_settled_id_range on tenure_settled (last_id, first_id);
-- For prune, by age: each row is in exactly one of the two.
create index tenure_settled_done on tenure_settled (settled_at)
where outcome = 'done' and is_pruned = 0;
create index tenure_settled_other on tenure_settled (settled_at)
where outcome <> 'done' or is_pruned = 1;

-- Dead items: settled without success, and not replayed.
create table tenure_dead (
    id      integer primary key,
    dead_at integer not null,
    reason  text    not null
) strict;

create index tenure_dead_at on tenure_dead (dead_at);

-- Counters of an item, and its lane and available_at where they differ from those that it was enqueued
-- with. Only items that ever had a setback or a replay have a row.
create table tenure_setbacks (
    id           integer primary key,
    generation   integer not null default 0 check (generation >= 0),
    attempts     integer not null default 0 check (attempts >= failures + crashes),
    failures     integer not null default 0 check (failures >= 0),
    crashes      integer not null default 0 check (crashes >= 0),
    lane         integer,
    available_at integer,
    replayed_at  integer,
    turn         integer,    -- position in its key after a replay; null: its id
    last_error   text
) strict;

-- For the heads that have been retried for long; the first failure of an item writes no entry.
create index tenure_setbacks_retried on tenure_setbacks (available_at) where failures > 1;

-- Dedupe keys, which make an event unique, and the event that has each.
create table tenure_dedupe (
    dedupe_key text    primary key not null check (length(cast(dedupe_key as blob)) between 1 and 255),
    id         integer not null
) strict, without rowid;

create index tenure_dedupe_id on tenure_dedupe (id);
