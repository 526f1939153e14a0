-- claim: takes one lease on due items, up to a limit, and returns them with their payloads, in order; a
-- head brings a run of its key along.
-- Parameters: :now, :lane, :limit (due, taken: run lane by lane, the most urgent first, until the limit is
--   reached); :last_at and :last_id, the last due item of the lane; :some, a JSON array of [available_at,
--   id]; :keys, ordering keys as a JSON array; :most, the maximum number of items behind a head; :run, a
--   JSON array of [ordering key, turn]; :token, :holder, :until, :fence, :ids as a JSON array, ascending,
--   and :ids_by_key; :names, queue names as a JSON array; :numbers, as a JSON array, the numbers that the
--   claim names as endpoints.
-- Returns: used: whether the token has a lease already; due: the items with their counters, in order;
--   followers: the same for the first items of each backlog, with lane and turn, in any order; fence: the
--   number of this claim; queues: name, number and whether it is paused; endpoints: the numbers that belong
--   to endpoints. webhook/sources.sql reads the payload of a delivery.
-- Keeps: laws 1, 2, 6, 7. The due items are chosen once, so the limit holds; taken removes exactly these
--   from ready, because they are the front of their lane, and taken_some removes the named ones; a fence is
--   drawn only if there is an item to claim.
-- Relies on: the primary key of tenure_ready, in which due items come before the others; those of the other
--   tables.

-- statement: queues
select queue.name, queue.number, queue.is_paused, queue.topic
from json_each(:names) as named
cross join tenure_queues as queue
    on queue.name = named.value;

-- statement: endpoints
select endpoint.number
from json_each(:numbers) as named
cross join tenure_endpoints as endpoint
    on endpoint.number = named.value;

-- statement: used
select exists (select 1 from tenure_leases where token = :token);

-- statement: due
select
    ready.id,
    ready.available_at,
    event.lane,
    event.event_id,
    event.topic,
    event.ordering_key,
    event.encoding,
    event.headers,
    event.payload,
    coalesce(setback.generation, 0) as generation,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    event.source
from tenure_ready as ready
cross join tenure_events as event
    on event.id = ready.id
left join tenure_setbacks as setback
    on setback.id = ready.id
where ready.lane = :lane
    and ready.available_at <= :now
order by ready.available_at, ready.id
limit :limit;

-- statement: taken
delete from tenure_ready
where lane = :lane
    and (available_at, id) <= (:last_at, :last_id);

-- statement: taken_some
delete from tenure_ready
where (lane, available_at, id) in (
    select :lane, value ->> 0, value ->> 1
    from json_each(:some)
);

-- statement: followers
select
    behind.id,
    coalesce(setback.available_at, event.available_at) as available_at,
    event.lane,
    event.event_id,
    event.topic,
    event.ordering_key,
    event.encoding,
    event.headers,
    event.payload,
    coalesce(setback.generation, 0) as generation,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    event.source,
    behind.lane as own_lane,
    behind.turn
from json_each(:keys) as named
cross join tenure_backlog as behind
    on behind.ordering_key = named.value
    and behind.turn <= coalesce(
        (
            select last.turn
            from tenure_backlog as last
            where last.ordering_key = named.value
            order by last.turn
            limit 1 offset :most - 1
        ),
        9223372036854775807
    )
cross join tenure_events as event
    on event.id = behind.id
left join tenure_setbacks as setback
    on setback.id = behind.id;

-- statement: followed
delete from tenure_backlog
where (ordering_key, turn) in (
    select value ->> 0, value ->> 1
    from json_each(:run)
);

-- statement: fence
update tenure_fence
set fence = fence + 1
returning fence;

-- statement: lease
insert into tenure_leases (token, fence, holder, claimed_at, locked_until, ids, ids_by_key)
values (:token, :fence, :holder, :now, :until, :ids, :ids_by_key);
