-- Version 1 of the schema, part 7 of 9: endpoints, calls and deliveries of webhooks. A delivery is an item
-- of the queue: a row of tenure_events with a source.

-- Addresses that receive webhooks. A number is never reused; queues and endpoints share the numbers, so
-- that a lane belongs to one of the two. The row of a removed endpoint stays, because its deliveries refer
-- to it.
create table tenure_endpoints (
    id             text    primary key not null check (length(cast(id as blob)) between 1 and 64),
    number         integer not null unique check (number > 0),
    settings       text    not null check (json_type(settings) = 'object'),
    sealed_secrets text    not null,    -- and headers, encrypted by the program that registers it
    state          text    not null check (state in ('enabled', 'disabled', 'removed')),
    disabled_cause text    check (disabled_cause in ('by_hand', 'gone', 'asked', 'failing')),
    disabled_note  text,                -- by the operator who disabled it
    state_since    integer not null,
    health         text    not null default '{}' check (json_type(health) = 'object'),
    version        integer not null default 1 check (version > 0),
    created_at     integer not null,
    check ((disabled_cause is null) = (state <> 'disabled'))
) strict;

-- One row. version rises with every change of any endpoint; rules_version only with a change that may
-- affect which deliveries an event gets.
create table tenure_endpoints_version (
    singleton     integer primary key check (singleton = 1),
    version       integer not null check (version >= 0),
    rules_version integer not null check (rules_version >= 0)
) strict;

insert into tenure_endpoints_version (singleton, version, rules_version)
values (1, 0, 0);

-- Calls. A row is written with the settle of its delivery, is never updated, and is deleted with the
-- delivery.
create table tenure_delivery_attempts (
    delivery    integer not null,
    fence       integer not null,
    attempt     integer not null check (attempt > 0),
    began_at    integer not null,
    outcome     text    not null check (
        outcome in ('delivered', 'failed', 'aborted', 'superseded')
    ),
    http_status integer,
    error       text,
    detail      text    not null check (json_type(detail) = 'object'),
    primary key (delivery, fence)
) strict;

-- Deliveries in the words of their specification: one row per event and endpoint, without the token.
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
            from tenure_settled as settled indexed by tenure_settled_id_range
            where settled.last_id between event.id and event.id | 1023
                and settled.first_id <= event.id
                and settled.outcome = 'done'
                and instr(',' || trim(settled.ids, '[]') || ',', ',' || event.id || ',') > 0
            order by settled.entry desc
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
