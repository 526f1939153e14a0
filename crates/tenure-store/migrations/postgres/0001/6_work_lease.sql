-- Version 1 of the schema, part 6 of 9: work leases, which keep the order of the offsets of a log.

-- The spaces of the work leases. A space is a set of domains under one watermark, such as a partition of a
-- log: every offset below the watermark is processed or failed, unless it is in flight or queued; a failed
-- offset that is also below forgiven_below counts as processed. Both only rise. A row is never deleted; a
-- statement that creates a domain locks it briefly, so that the watermark does not advance meanwhile.
create table tenure_spaces (
    space          text   collate "C" primary key check (octet_length(space) between 1 and 255),
    number         int    not null unique generated always as identity,
    watermark      bigint not null default -9223372036854775808,
    forgiven_below bigint not null default -9223372036854775808
);

-- One row per domain of a work lease: the offset in flight, if there is one, and the version that rises
-- with every change of the domain, here or in the two tables below. Every change is guarded by number and
-- version. A number is never reused: a domain that was evicted and created again has another one.
create table tenure_reservations (
    number            bigint      primary key generated always as identity,
    version           bigint      not null default 1,
    current_offset    bigint,
    first_acquired_at timestamptz,
    locked_until      timestamptz,                                                   -- null: it never lapses
    retry_count       bigint      not null default 0 check (retry_count between 0 and 4294967295),
    backlog_length    bigint      not null default 0 check (backlog_length >= 0),    -- rows of the backlog
    space_number      int         not null,
    domain            text        collate "C" not null check (octet_length(domain) between 1 and 255),
    token             text,
    unique (space_number, domain),
    check (num_nonnulls(current_offset, token, first_acquired_at) in (0, 3)),
    check (current_offset is not null or (retry_count = 0 and locked_until is null))
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
create index tenure_reservations_idle on tenure_reservations (space_number, domain)
where current_offset is null and backlog_length > 0;
create index tenure_reservations_lapse on tenure_reservations (space_number, locked_until)
where locked_until is not null;

-- Offsets that wait behind the one in flight, in the order of their arrival, each offset once.
create table tenure_reservation_backlog (
    reservation    bigint not null,
    queue_position bigint not null,
    log_offset     bigint not null,
    primary key (reservation, queue_position),
    unique (reservation, log_offset)
);

-- Processed and failed offsets as ranges: no two overlap, and no two of one kind touch. Inserted and
-- deleted, never updated.
create table tenure_offsets (
    reservation  bigint not null,
    last_offset  bigint not null,
    first_offset bigint not null,
    space_number int    not null,
    kind         text   not null check (kind in ('processed', 'failed')),
    primary key (reservation, last_offset),
    check (first_offset <= last_offset)
);
-- For prune, by the last offset.
create index tenure_offsets_prunable on tenure_offsets (space_number, kind, last_offset);
