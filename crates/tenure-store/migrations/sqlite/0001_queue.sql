-- The queue layout: append-only events, narrow ready rows, one lease row per claim.
-- An item is in exactly one place: ready, backlog, one lease's ids, dead, or none of them, and then it
-- is published. Times are microseconds since 1970.
-- Old and new programs side by side: this is the first version.

-- Named lines of events. A lane is number * 16 + (7 - priority); number * 16 + 8 is for the items
-- of the queue that must be claimed alone. Endpoints have numbers of the same kind.
create table tenure_queues (
    number  integer primary key check (number >= 0),
    name    text    not null unique check (length(cast(name as blob)) between 1 and 255),
    term_ms integer check (term_ms between 1 and 86400000),
    paused  integer not null default 0 check (paused in (0, 1))
) strict;

insert into tenure_queues (number, name)
values (0, 'default');

-- The last fence that was drawn, by claims of both layouts. One row.
create table tenure_fence (
    one   integer primary key check (one = 1),
    fence integer not null check (fence >= 0)
) strict;

insert into tenure_fence (one, fence)
values (1, 0);

-- The last id that was given to an event or a delivery, and how many ids have no item: it was pruned,
-- or the number was drawn for a turn. The ids that were given, less these, are the items.
create table tenure_ids (
    kind    text    primary key not null check (kind in ('event', 'delivery')),
    last_id integer not null,
    vacant  integer not null default 0 check (vacant >= 0)
) strict, without rowid;

insert into tenure_ids (kind, last_id)
values ('event', 0), ('delivery', 4503599627370496);

-- Events, and deliveries: events owed to endpoints, with ids above 2^52. Append-only. Never updated;
-- deleted only by prune. The wide columns stand last, so that the narrow ones are read without them. An
-- id is never given twice (tenure_ids; deliveries lie behind all events, so the next rowid is of no
-- use): the journal names it.
create table tenure_events (
    id           integer primary key,
    lane         integer not null check (lane >= 0 and lane % 16 < 8),
    created_at   integer not null,
    available_at integer not null,    -- as enqueued; a later one is in tenure_setbacks
    source       integer,             -- of a delivery: the event, which has the payload
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
-- An event is owed to an endpoint once, whatever happens.
create unique index tenure_events_source on tenure_events (source, lane / 16)
where source is not null;

-- What may be claimed at available_at: items without a key, and the head of each domain. Inserted
-- and deleted, never updated. Lane and available_at are always coalesce(setbacks, events) of the same
-- id: so one index is enough to find a row by id.
create table tenure_ready (
    lane         integer not null,
    available_at integer not null,
    id           integer not null,
    primary key (lane, available_at, id)
) strict, without rowid;

-- Who has the turn in each domain that has something open or is paused; of an idle one there is no
-- row. While something of it is held, the first of that is the head.
create table tenure_domains (
    ordering_key text    primary key not null,
    head         integer,                       -- in ready or in a lease, or dead and blocking
    since        integer not null,              -- of the head or the pause
    blocked      integer not null default 0 check (blocked in (0, 1)),
    paused       integer not null default 0 check (paused in (0, 1)),
    check (head is not null or not blocked)
) strict, without rowid;

-- What waits for its turn. Inserted and deleted, never updated. Turn is always
-- coalesce(setbacks.turn, id), lane as in tenure_ready.
create table tenure_backlog (
    ordering_key text    not null,
    turn         integer not null,
    id           integer not null,
    lane         integer not null,
    primary key (ordering_key, turn)
) strict, without rowid;

-- One row per claim. ids: a JSON array, ascending, without spaces. domains: of those that have a key,
-- as a JSON object of arrays, key by key; null: none has one.
create table tenure_leases (
    token        text    primary key not null,
    fence        integer not null,
    holder       text    not null check (holder <> ''),
    claimed_at   integer not null,
    locked_until integer not null,
    ids          text    not null check (json_array_length(ids) > 0),
    domains      text
) strict;

-- The journal of ended holds: it answers a repeated settle, and says when an event was published.
-- ids: as in a lease, but those of one row lie within one block of 1024, so that the rows that may
-- name an id are found in a short range of hi.
create table tenure_settled (
    line       integer primary key,
    token      text    not null,
    outcome    text    not null check (
        outcome in ('done', 'retry', 'dead', 'release', 'lapsed', 'buried')
    ),
    holder     text    not null,
    fence      integer not null,
    claimed_at integer not null,
    settled_at integer not null,
    lo         integer not null,
    hi         integer not null,
    spent      integer not null default 0 check (spent in (0, 1)),    -- prune is through with it
    ids        text    not null,
    check (lo <= hi and lo >> 10 = hi >> 10)
) strict;

create index tenure_settled_token on tenure_settled (token);
create index tenure_settled_span on tenure_settled (hi, lo);
-- By age, for prune: a row is in one of the two.
create index tenure_settled_done on tenure_settled (settled_at)
where outcome = 'done' and spent = 0;
create index tenure_settled_other on tenure_settled (settled_at)
where outcome <> 'done' or spent = 1;

create table tenure_dead (
    id      integer primary key,
    dead_at integer not null,
    reason  text    not null
) strict;

create index tenure_dead_at on tenure_dead (dead_at);

-- Only for items that ever had one. A null lane or available_at: as enqueued.
create table tenure_setbacks (
    id           integer primary key,
    generation   integer not null default 0 check (generation >= 0),
    attempts     integer not null default 0 check (attempts >= failures + crashes),
    failures     integer not null default 0 check (failures >= 0),
    crashes      integer not null default 0 check (crashes >= 0),
    lane         integer,
    available_at integer,
    replayed_at  integer,
    turn         integer,    -- its place in its domain, once it was replayed
    last_error   text
) strict;

-- Which event won a dedupe key.
create table tenure_dedupe (
    key text    primary key not null check (length(cast(key as blob)) between 1 and 255),
    id  integer not null
) strict, without rowid;

create index tenure_dedupe_id on tenure_dedupe (id);

-- What is set for all processes, over each one's own configuration.
create table tenure_settings (
    name  text primary key not null,
    value text not null
) strict, without rowid;

-- Rises with each change of tenure_settings; whoever changes them names the one he has seen. One row.
create table tenure_settings_version (
    one     integer primary key check (one = 1),
    version integer not null check (version >= 0)
) strict;

insert into tenure_settings_version (one, version)
values (1, 0);

-- What each worker said of itself last.
create table tenure_workers (
    worker           text    primary key not null,
    host             text    not null,
    pid              integer not null,
    version          text    not null,
    queues           text    not null,
    concurrency      integer not null,
    running          integer not null,
    held             integer not null,
    settings_version integer not null,
    next_within_ms   integer not null check (next_within_ms >= 0),
    started_at       integer not null,
    seen_at          integer not null,
    left_at          integer
) strict;

-- The spaces of the work leases. A space is a set of domains under one watermark, such as a partition
-- of a log: every offset below the watermark is terminal in every domain, and if it is below forgiven
-- too, it counts as processed even if it was given up. Both only rise.
create table tenure_watermarks (
    number    integer primary key,
    space     text    not null unique check (length(cast(space as blob)) between 1 and 255),
    watermark integer not null default -9223372036854775808,
    forgiven  integer not null default -9223372036854775808
) strict;

-- A row per domain of a work lease: the offset in flight, if there is one, and the version that rises
-- with every change of the domain, here or in the two tables below.
create table tenure_reservations (
    number            integer primary key autoincrement,
    version           integer not null default 1,
    space             integer not null,
    domain            text    not null check (length(cast(domain as blob)) between 1 and 255),
    current_offset    integer,
    token             text,
    first_acquired_at integer,
    retry_count       integer not null default 0 check (retry_count between 0 and 4294967295),
    locked_until      integer,    -- null: it never lapses
    queued            integer not null default 0 check (queued >= 0),    -- rows of the backlog
    unique (space, domain),
    check (
        (current_offset is null) = (token is null)
        and (current_offset is null) = (first_acquired_at is null)
    ),
    check (current_offset is not null or (retry_count = 0 and locked_until is null))
) strict;

create index tenure_reservations_kick on tenure_reservations (space, domain)
where current_offset is null and queued > 0;
create index tenure_reservations_lapse on tenure_reservations (space, locked_until)
where locked_until is not null;

-- What waits behind the offset in flight, in the order of arrival, each offset once.
create table tenure_reservation_backlog (
    reservation integer not null,
    place       integer not null,
    log_offset  integer not null,
    primary key (reservation, place),
    unique (reservation, log_offset)
) strict, without rowid;

-- Terminal offsets, as ranges that neither overlap nor, within a kind, touch. Inserted and deleted,
-- never updated.
create table tenure_offsets (
    reservation integer not null,
    hi          integer not null,
    lo          integer not null,
    space       integer not null,
    kind        text    not null check (kind in ('processed', 'failed')),
    primary key (reservation, hi),
    check (lo <= hi)
) strict, without rowid;

-- By age, for prune.
create index tenure_offsets_age on tenure_offsets (space, kind, hi);

-- One row per event, for people. It shows no token. (The cast lets SQLite join the held ids by an
-- index of its own making; values from JSON have no type, and it would compare each with each.)
create view tenure_outbox as
with held as materialized (
    select
        cast(held_id.value as integer) as id,
        lease.fence,
        lease.holder,
        lease.claimed_at,
        lease.locked_until
    from tenure_leases as lease, json_each(lease.ids) as held_id
)
select
    event.id,
    event.event_id,
    event.topic,
    event.ordering_key,
    queue.name as queue,
    7 - event.lane % 16 as priority,
    event.payload,
    event.headers,
    event.encoding,
    case
        when ready.id is not null or behind.id is not null then 'PENDING'
        when dead.id is not null then 'DEAD'
        when held.id is not null then 'CLAIMED'
        else 'PUBLISHED'
    end as status,
    event.created_at,
    coalesce(setback.available_at, event.available_at) as available_at,
    held.claimed_at,
    held.holder as claimed_by,
    held.locked_until,
    held.fence,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    setback.last_error,
    case
        when ready.id is null and behind.id is null and dead.id is null and held.id is null then (
            select settled.settled_at
            from tenure_settled as settled indexed by tenure_settled_span
            where settled.hi between event.id and event.id | 1023
                and settled.lo <= event.id
                and settled.outcome = 'done'
                and instr(',' || trim(settled.ids, '[]') || ',', ',' || event.id || ',') > 0
            order by settled.line desc
            limit 1
        )
    end as published_at,
    dead.dead_at,
    dead.reason as dead_reason,
    coalesce(setback.generation, 0) as generation
from tenure_events as event
left join tenure_queues as queue
    on queue.number = event.lane / 16
left join tenure_setbacks as setback
    on setback.id = event.id
left join tenure_ready as ready
    on ready.lane = coalesce(setback.lane, event.lane)
    and ready.available_at = coalesce(setback.available_at, event.available_at)
    and ready.id = event.id
left join tenure_backlog as behind
    on behind.ordering_key = event.ordering_key
    and behind.turn = coalesce(setback.turn, event.id)
left join tenure_dead as dead
    on dead.id = event.id
left join held
    on held.id = event.id
where event.id <= 4503599627370496;

-- `insert into tenure_outbox (topic, payload) values (…)` enqueues an event, in the caller's
-- transaction and from any language. It refuses what the library refuses, then inserts, and nothing
-- more.
create trigger tenure_outbox_insert
instead of insert on tenure_outbox
begin
    select raise(abort, 'topic is not 1 to 255 bytes without control characters: try order.paid')
    where new.topic is null
        or typeof(new.topic) <> 'text'
        or length(cast(new.topic as blob)) not between 1 and 255
        or instr(new.topic, char(0)) > 0
        or new.topic glob
            '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
    select raise(abort, 'payload is not JSON, such as {"order": 7}')
    where new.payload is null
        or typeof(new.payload) = 'blob'
        or not json_valid(new.payload);
    select raise(abort, 'payload is over 1 MiB: keep the large part elsewhere and send its address')
    where length(cast(new.payload as blob)) > 1048576;
    select raise(abort, 'encoding is neither null nor base64, or the payload is not a JSON string')
    where new.encoding is not null
        and (new.encoding <> 'base64' or json_type(new.payload) <> 'text');
    select raise(
        abort,
        'ordering key is not 1 to 255 bytes without control characters: try customer-7'
    )
    where new.ordering_key is not null
        and (
            typeof(new.ordering_key) <> 'text'
            or length(cast(new.ordering_key as blob)) not between 1 and 255
            or instr(new.ordering_key, char(0)) > 0
            or new.ordering_key glob
                '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        );
    select raise(abort, 'there is no such queue: add it with tenure queues add')
    where new.queue is not null
        and not exists (select 1 from tenure_queues where name = new.queue);
    select raise(abort, 'priority is not 0 to 7, high first')
    where new.priority is not null
        and (typeof(new.priority) <> 'integer' or new.priority not between 0 and 7);
    select raise(abort, 'available_at is not a number of microseconds since 1970')
    where new.available_at is not null
        and typeof(new.available_at) <> 'integer';
    select raise(abort, 'event_id is not a blob of 16 bytes')
    where new.event_id is not null
        and (typeof(new.event_id) <> 'blob' or length(new.event_id) <> 16);
    select raise(abort, 'headers is not a JSON object')
    where new.headers is not null
        and (not json_valid(new.headers) or json_type(new.headers) <> 'object');
    select raise(
        abort,
        'headers is not 16 KiB at most of lower-case names and texts without control characters'
    )
    where length(cast(new.headers as blob)) > 16384
        or exists (
            select 1
            from json_each(new.headers) as header
            where header.type <> 'text'
                or length(header.key) not between 1 and 255
                or header.key glob '*[^-!#$%&''*+.^_`|~0-9a-z]*'
                or instr(header.value, char(0)) > 0
                or header.value glob
                    '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        );
    update tenure_ids
    set last_id = last_id + 1
    where kind = 'event';
    insert into tenure_events (
        id, lane, created_at, available_at, event_id, topic, ordering_key, encoding, headers, payload
    )
    values (
        (select last_id from tenure_ids where kind = 'event'),
        (select number from tenure_queues where name = coalesce(new.queue, 'default')) * 16
            + 7 - coalesce(new.priority, 0),
        strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000,
        coalesce(
            new.available_at,
            strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000
        ),
        -- A random UUID: version 4 in the seventh byte, the variant in the ninth.
        coalesce(
            new.event_id,
            cast(
                randomblob(6)
                || substr(x'404142434445464748494a4b4c4d4e4f', 1 + (random() & 15), 1)
                || randomblob(1)
                || substr(x'808182838485868788898a8b8c8d8e8f', 1 + (random() & 15), 1)
                || randomblob(7)
                as blob
            )
        ),
        new.topic,
        new.ordering_key,
        new.encoding,
        new.headers,
        new.payload
    );
    -- The tables of the places have no rowid, so the last one stays that of the event.
    insert into tenure_domains (ordering_key, head, since)
    select ordering_key, id, created_at
    from tenure_events
    where id = last_insert_rowid()
        and ordering_key is not null
        and not exists (
            select 1 from tenure_domains where ordering_key = tenure_events.ordering_key
        );
    insert into tenure_ready (lane, available_at, id)
    select event.lane, event.available_at, event.id
    from tenure_events as event
    left join tenure_domains as domain
        on domain.ordering_key = event.ordering_key
    where event.id = last_insert_rowid()
        and (event.ordering_key is null or domain.head = event.id);
    insert into tenure_backlog (ordering_key, turn, id, lane)
    select event.ordering_key, event.id, event.id, event.lane
    from tenure_events as event
    cross join tenure_domains as domain
        on domain.ordering_key = event.ordering_key
    where event.id = last_insert_rowid()
        and domain.head is not event.id;
end;
