-- Webhooks: endpoints, and the calls that were made for deliveries. A delivery itself is a row of
-- tenure_events with a source, and sits in the places of the queue layout as an event does.
-- Old and new programs side by side: this is the first version.

-- Addresses that receive webhooks. Never deleted: a removed one is kept so that its deliveries can
-- still be shown, and its number is not given again. Numbers are shared with tenure_queues.
create table tenure_endpoints (
    id         text    primary key not null check (length(cast(id as blob)) between 1 and 64),
    number     integer not null unique check (number > 0),
    settings   text    not null check (json_type(settings) = 'object'),
    sealed     text    not null,    -- secrets and headers, encrypted by whoever registers it
    state      text    not null check (state in ('enabled', 'disabled', 'removed')),
    why        text    check (why in ('by_hand', 'gone', 'asked', 'failing')),
    words      text,                -- of the person who disabled it
    since      integer not null,    -- of its state
    health     text    not null default '{}' check (json_type(health) = 'object'),
    version    integer not null default 1 check (version > 0),
    created_at integer not null,
    check ((why is null) = (state <> 'disabled'))
) strict;

-- One row. The version rises with each change of any endpoint, its health included; rules only with
-- one that may change what is owed to whom.
create table tenure_endpoints_version (
    one     integer primary key check (one = 1),
    version integer not null check (version >= 0),
    rules   integer not null check (rules >= 0)
) strict;

insert into tenure_endpoints_version (one, version, rules)
values (1, 0, 0);

-- One row per call, written with the settle of its delivery. Inserted, never updated; goes with its
-- delivery.
create table tenure_delivery_attempts (
    delivery integer not null,
    fence    integer not null,
    attempt  integer not null check (attempt > 0),
    began_at integer not null,
    outcome  text    not null check (
        outcome in ('delivered', 'failed', 'aborted', 'superseded')
    ),
    status   integer,
    error    text,
    detail   text    not null check (json_type(detail) = 'object'),
    primary key (delivery, fence)
) strict;

-- Replays of all that matches a filter, each an operation that goes on step by step, whoever takes the
-- step. All up to reached was looked at; last_id was the newest item when it began.
create table tenure_replays (
    id         integer primary key autoincrement,
    filter     text    not null check (json_type(filter) = 'object'),
    rate       integer check (rate > 0),    -- items per minute
    expected   integer,
    reached    integer not null,
    last_id    integer not null,
    replayed   integer not null default 0,
    refused    integer not null default 0,
    state      text    not null default 'running' check (
        state in ('running', 'done', 'cancelled')
    ),
    created_at integer not null,
    next_at    integer not null,            -- no step is due before
    ended_at   integer,
    check ((ended_at is null) = (state = 'running'))
) strict;

create index tenure_replays_running on tenure_replays (next_at) where state = 'running';

-- One row per delivery, in the words of their specification. It shows no token.
create view tenure_deliveries as
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
    event.source,
    event.event_id,
    endpoint.id as endpoint,
    event.topic,
    event.ordering_key,
    case
        when ready.id is not null or behind.id is not null or held.id is not null then 'pending'
        when dead.id is not null then 'failed'
        else 'delivered'
    end as delivery_status,
    held.holder as lease_owner,
    held.locked_until as lease_until,
    held.claimed_at,
    held.fence,
    case
        when ready.id is not null or behind.id is not null
            then coalesce(setback.available_at, event.available_at)
    end as next_attempt_at,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    setback.last_error,
    event.created_at,
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
    end as delivered_at,
    dead.dead_at as failed_at,
    dead.reason as failed_reason,
    coalesce(setback.generation, 0) as generation
from tenure_events as event
left join tenure_endpoints as endpoint
    on endpoint.number = event.lane / 16
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
where event.id > 4503599627370496;
