-- Version 1 of the schema, part 5 of 9: the cluster: all workers of this database.

-- Settings of the cluster; they override the configuration of each process.
create table tenure_settings (
    name  text primary key not null,
    value text not null
) strict, without rowid;

-- One row. Its version rises with each change of tenure_settings; a change must name the current version.
create table tenure_settings_version (
    singleton integer primary key check (singleton = 1),
    version   integer not null check (version >= 0)
) strict;

insert into tenure_settings_version (singleton, version)
values (1, 0);

-- The last report of each worker.
create table tenure_workers (
    worker                text    primary key not null,
    host                  text    not null,
    pid                   integer not null,
    version               text    not null,
    queues                text    not null,
    topics                text    not null default '',
    concurrency           integer not null,
    running               integer not null,
    held                  integer not null,
    settings_version      integer not null,
    next_report_within_ms integer not null check (next_report_within_ms >= 0),
    started_at            integer not null,
    reported_at           integer not null,
    left_at               integer
) strict;
