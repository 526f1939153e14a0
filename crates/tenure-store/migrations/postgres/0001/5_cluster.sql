-- Version 1 of the schema, part 5 of 9: the cluster: all workers of this database.

-- Settings of the cluster; they override the configuration of each process.
create table tenure_settings (
    name  text collate "C" primary key,
    value text not null
);

-- One row. Its version rises with each change of tenure_settings; a change must name the current version.
create table tenure_settings_version (
    singleton int    primary key check (singleton = 1),
    version   bigint not null check (version >= 0)
);
insert into tenure_settings_version (singleton, version) values (1, 0);

-- The last report of each worker. Half of each page is free, and no indexed column changes (HOT updates).
create table tenure_workers (
    worker                text        collate "C" primary key,
    host                  text        not null,
    pid                   bigint      not null,
    version               text        not null,
    queues                text        not null,
    topics                text        not null default '',
    concurrency           bigint      not null,
    running               bigint      not null,
    held                  bigint      not null,
    settings_version      bigint      not null,
    next_report_within_ms bigint      not null check (next_report_within_ms >= 0),
    started_at            timestamptz not null,
    reported_at           timestamptz not null,
    left_at               timestamptz
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
