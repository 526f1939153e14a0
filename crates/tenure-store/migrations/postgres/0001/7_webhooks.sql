-- Version 1 of the schema, part 7 of 9: endpoints, calls and deliveries of webhooks. A delivery is an item
-- of the queue: a row of tenure_events with a source.

-- Addresses that receive webhooks. A number is never reused; queues and endpoints share the numbers, so
-- that a lane belongs to one of the two. The row of a removed endpoint stays, because its deliveries refer
-- to it. Half of each page is free, and no indexed column changes (HOT updates).
create table tenure_endpoints (
    id             text        collate "C" primary key check (octet_length(id) between 1 and 64),
    number         int         not null unique default nextval('tenure_queues_number_seq'),
    version        bigint      not null default 1,
    created_at     timestamptz not null,
    state_since    timestamptz not null,
    state          text        not null check (state in ('enabled', 'disabled', 'removed')),
    disabled_cause text        check (disabled_cause in ('by_hand', 'gone', 'asked', 'failing')),
    disabled_note  text,                    -- by the operator who disabled it
    sealed_secrets text        not null,    -- and headers, encrypted by the program that registers it
    settings       json        not null,
    health         json        not null default '{}',
    check ((disabled_cause is null) = (state <> 'disabled'))
) with (fillfactor = 50);

-- One row. version rises with every change of any endpoint; rules_version only with a change that may
-- affect which deliveries an event gets.
create table tenure_endpoints_version (
    singleton     int    primary key check (singleton = 1),
    version       bigint not null check (version >= 0),
    rules_version bigint not null check (rules_version >= 0)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
insert into tenure_endpoints_version (singleton, version, rules_version) values (1, 0, 0);

-- Calls, one row each. The lease under which a call was made is in tenure_leases, later in tenure_settled:
-- a lapsed lease without a row here is a call with an unknown result.
create table tenure_delivery_attempts (
    delivery    bigint      not null,
    fence       bigint      not null,
    began_at    timestamptz not null,
    attempt     int         not null,
    http_status int,
    outcome     text        not null check (outcome in ('delivered', 'failed', 'aborted', 'superseded')),
    error       text,
    detail      json        not null,
    primary key (delivery, fence)
);

-- Deliveries in the words of their specification: one row per event and endpoint. The branches are those of
-- tenure_outbox.
create view tenure_deliveries as
with delivery as not materialized (
    select e.id, e.source, e.event_id, p.id as endpoint, e.topic, e.ordering_key, e.created_at,
           coalesce(s.lane, e.lane) as lane, coalesce(s.available_at, e.available_at) as available_at,
           tenure_key_hash(e.ordering_key) as key_hash, coalesce(s.turn, e.id) as turn,
           coalesce(s.attempts, 0) as attempts, coalesce(s.failures, 0) as failures,
           coalesce(s.crashes, 0) as crashes, s.last_error, coalesce(s.generation, 0) as generation
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    left join tenure_endpoints p on p.number = e.lane >> 4
    where e.id > 4503599627370496
)
select e.id, e.source, e.event_id, e.endpoint, e.topic, e.ordering_key,
       'pending'::text as delivery_status, null::text as lease_owner, null::timestamptz as lease_until,
       null::timestamptz as claimed_at, null::bigint as fence, e.available_at as next_attempt_at, e.attempts,
       e.failures, e.crashes, e.last_error, e.created_at, null::timestamptz as delivered_at,
       null::timestamptz as failed_at, null::text as failed_reason, e.generation
from delivery e
join tenure_ready r on r.lane = e.lane and r.available_at = e.available_at and r.id = e.id
union all
select e.id, e.source, e.event_id, e.endpoint, e.topic, e.ordering_key, 'pending', null, null, null, null,
       e.available_at, e.attempts, e.failures, e.crashes, e.last_error, e.created_at, null, null, null,
       e.generation
from delivery e join tenure_backlog b on b.key_hash = e.key_hash and b.turn = e.turn and b.id = e.id
union all
select e.id, e.source, e.event_id, e.endpoint, e.topic, e.ordering_key, 'pending', l.holder,
       l.locked_until, l.claimed_at, l.fence, null, e.attempts, e.failures, e.crashes, e.last_error,
       e.created_at, null, null, null, e.generation
from tenure_leases l cross join unnest(l.ids) as i(id) join delivery e on e.id = i.id
union all
select e.id, e.source, e.event_id, e.endpoint, e.topic, e.ordering_key, 'failed', null, null, null, null,
       null, e.attempts, e.failures, e.crashes, d.last_error, e.created_at, null, d.dead_at, d.reason,
       e.generation
from tenure_dead d join delivery e on e.id = d.id
union all
select e.id, e.source, e.event_id, e.endpoint, e.topic, e.ordering_key, 'delivered', null, null, null,
       null, null, e.attempts, e.failures, e.crashes, e.last_error, e.created_at,
       (select max(j.settled_at) from tenure_settled j
        where j.outcome = 'done' and int8range(j.first_id, j.last_id, '[]') @> e.id and e.id = any (j.ids)),
       null, null, e.generation
from delivery e
where not exists (select from tenure_ready r
                  where r.lane = e.lane and r.available_at = e.available_at and r.id = e.id)
  and not exists (select from tenure_leases l cross join unnest(l.ids) as i(id) where i.id = e.id)
  and not exists (select from tenure_dead d where d.id = e.id)
  and not exists (select from tenure_backlog b
                  where b.key_hash = e.key_hash and b.turn = e.turn and b.id = e.id);
