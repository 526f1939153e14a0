-- Version 1 of the schema, part 6 of 9: work leases, which keep the order of the offsets of a log.

-- The spaces of the work leases. A space is a set of domains under one watermark, such as a partition of a
-- log: every offset below the watermark is processed or failed, unless it is in flight or queued; a failed
-- offset that is also below forgiven_below counts as processed. Both only rise.
create table tenure_spaces (
    number         integer primary key,
    space          text    not null unique check (length(cast(space as blob)) between 1 and 255),
    watermark      integer not null default -9223372036854775808,
    forgiven_below integer not null default -9223372036854775808
) strict;

-- One row per domain of a work lease: the offset in flight, if there is one, and the version that rises
-- with every change of the domain, here or in the two tables below.
create table tenure_reservations (
    number            integer primary key autoincrement,
    version           integer not null default 1,
    space_number      integer not null,
    domain            text    not null check (length(cast(domain as blob)) between 1 and 255),
    current_offset    integer,
    token             text,
    first_acquired_at integer,
    retry_count       integer not null default 0 check (retry_count between 0 and 4294967295),
    locked_until      integer,                                                   -- null: it never lapses
    backlog_length    integer not null default 0 check (backlog_length >= 0),    -- rows of the backlog
    unique (space_number, domain),
    check (
        (current_offset is null) = (token is null)
        and (current_offset is null) = (first_acquired_at is null)
    ),
    check (current_offset is not null or (retry_count = 0 and locked_until is null))
) strict;

create index tenure_reservations_idle on tenure_reservations (space_number, domain)
where current_offset is null and backlog_length > 0;
create index tenure_reservations_lapse on tenure_reservations (space_number, locked_until)
where locked_until is not null;

-- Offsets that wait behind the one in flight, in the order of their arrival, each offset once.
create table tenure_reservation_backlog (
    reservation    integer not null,
    queue_position integer not null,
    log_offset     integer not null,
    primary key (reservation, queue_position),
    unique (reservation, log_offset)
) strict, without rowid;

-- Processed and failed offsets as ranges: no two overlap, and no two of one kind touch. Inserted and
-- deleted, never updated.
create table tenure_offsets (
    reservation  integer not null,
    last_offset  integer not null,
    first_offset integer not null,
    space_number integer not null,
    kind         text    not null check (kind in ('processed', 'failed')),
    primary key (reservation, last_offset),
    check (first_offset <= last_offset)
) strict, without rowid;

-- For prune, by the last offset.
create index tenure_offsets_prunable on tenure_offsets (space_number, kind, last_offset);
