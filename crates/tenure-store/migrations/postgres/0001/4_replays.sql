-- Version 1 of the schema, part 4 of 9: bulk replays.

-- Bulk replays: each replays all items that match a filter, in steps that any worker may take. All items up
-- to reached_id have been examined; last_id was the newest when the replay began.
create table tenure_replays (
    id              bigint      generated always as identity primary key,
    filter          json        not null,
    rate_per_minute int         check (rate_per_minute > 0),
    expected_items  bigint,
    reached_id      bigint      not null,
    last_id         bigint      not null,
    replayed        bigint      not null default 0,
    refused         bigint      not null default 0,
    state           text        not null default 'running' check (state in ('running', 'done', 'cancelled')),
    created_at      timestamptz not null,
    next_step_at    timestamptz not null,    -- no step is due before this time
    ended_at        timestamptz,
    check ((ended_at is null) = (state = 'running'))
) with (fillfactor = 50);
create index tenure_replays_running on tenure_replays (next_step_at) where state = 'running';
