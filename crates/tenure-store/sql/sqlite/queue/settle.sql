-- settle: ends the lease on named items, each with its outcome, and on the other items of the lease if
-- requested. Reap and bury end leases by the same statements: journal, setbacks, ready, behind, dead. The
-- statements next, promoted, heads and idle give a key without a head its next one.
-- Parameters: :token, :now; :ids, the ids that stay in the lease, as a JSON array, ascending, and
--   :ids_by_key; :keys, ordering keys as a JSON array; :run, a JSON array of [ordering key, turn]; :heads,
--   a JSON array of [ordering key, id or null, whether it is dead and blocks]; for the journal also
--   :outcome, :holder, :fence, :claimed_at and :blocks, a JSON array of arrays of ids, each within one
--   block of 1024, ascending; :setbacks, a JSON array of [id, attempts, failures, crashes (to be added),
--   last_error, available_at, lane (null: unchanged)]; :back and :behind, the ids that become pending again
--   in ready and in the backlog, as JSON arrays; :dead, a JSON array of [id, reason].
-- Returns: lease: the items held under the token; next: key, and turn and id of its first waiting item
--   (null: there is none); whether the key is paused.
-- Keeps: laws 3, 4, 6, 7, 9. Only items of the lease with this token are ended; counters are incremented,
--   not set; the key of a ready row is computed from setbacks and events.
-- Relies on: the primary keys.

-- statement: lease
select fence, holder, claimed_at, locked_until, ids, ids_by_key
from tenure_leases
where token = :token;

-- statement: end_lease
delete from tenure_leases
where token = :token;

-- statement: keep_lease
update tenure_leases
set
    ids = :ids,
    ids_by_key = :ids_by_key
where token = :token;

-- statement: journal
insert into tenure_settled (token, outcome, holder, fence, claimed_at, settled_at, first_id, last_id, ids)
select :token, :outcome, :holder, :fence, :claimed_at, :now, value ->> 0, value ->> '$[#-1]', value
from json_each(:blocks);

-- statement: setbacks
insert into tenure_setbacks as old (id, attempts, failures, crashes, last_error, available_at, lane)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
from json_each(:setbacks)
where true
on conflict (id) do update set
    attempts = old.attempts + excluded.attempts,
    failures = old.failures + excluded.failures,
    crashes = old.crashes + excluded.crashes,
    last_error = coalesce(excluded.last_error, old.last_error),
    available_at = coalesce(excluded.available_at, old.available_at),
    lane = coalesce(excluded.lane, old.lane);

-- statement: ready
insert into tenure_ready (lane, available_at, id)
select
    coalesce(setback.lane, event.lane),
    coalesce(setback.available_at, event.available_at),
    event.id
from json_each(:back) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_setbacks as setback
    on setback.id = named.value;

-- statement: dead
insert into tenure_dead (id, dead_at, reason)
select value ->> 0, :now, value ->> 1
from json_each(:dead);

-- statement: behind
insert into tenure_backlog (ordering_key, turn, id, lane)
select
    event.ordering_key,
    coalesce(setback.turn, event.id),
    event.id,
    coalesce(setback.lane, event.lane)
from json_each(:behind) as named
cross join tenure_events as event
    on event.id = named.value
left join tenure_setbacks as setback
    on setback.id = named.value;

-- statement: next
select named.value as ordering_key, behind.turn, behind.id, coalesce(key_row.is_paused, 0) as is_paused
from json_each(:keys) as named
left join tenure_keys as key_row
    on key_row.ordering_key = named.value
left join tenure_backlog as behind
    on behind.ordering_key = named.value
    and behind.turn = (
        select min(first.turn)
        from tenure_backlog as first
        where first.ordering_key = named.value
    );

-- statement: promoted
delete from tenure_backlog
where (ordering_key, turn) in (
    select value ->> 0, value ->> 1
    from json_each(:run)
);

-- statement: heads
insert into tenure_keys as old (ordering_key, head, is_blocked, state_since)
select value ->> 0, value ->> 1, value ->> 2, :now
from json_each(:heads)
where true
on conflict (ordering_key) do update set
    head = excluded.head,
    is_blocked = excluded.is_blocked,
    state_since = iif(old.is_paused or old.head is excluded.head, old.state_since, excluded.state_since);

-- statement: idle
delete from tenure_keys
where ordering_key in (select value from json_each(:keys));
