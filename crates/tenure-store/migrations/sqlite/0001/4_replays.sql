-- Version 1 of the schema, part 4 of 9: bulk replays.

-- Bulk replays: each replays all items that match a filter, in steps that any worker may take. All items up
-- to reached_id have been examined; last_id was the newest when the replay began.
create table tenure_replays (
    id              integer primary key autoincrement,
    filter          text    not null check (json_type(filter) = 'object'),
    rate_per_minute integer check (rate_per_minute > 0),
    expected_items  integer,
    reached_id      integer not null,
    last_id         integer not null,
    replayed        integer not null default 0,
    refused         integer not null default 0,
    state           text    not null default 'running' check (
        state in ('running', 'done', 'cancelled')
    ),
    created_at      integer not null,
    next_step_at    integer not null,    -- no step is due before this time
    ended_at        integer,
    check ((ended_at is null) = (state = 'running'))
) strict;

create index tenure_replays_running on tenure_replays (next_step_at) where state = 'running';
