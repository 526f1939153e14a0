-- settle: ends the hold on named items of a lease, each with its outcome, and on the rest if asked
--   to. Reap and bury end holds by the same statements: journal, setbacks, ready, dead.
-- Parameters: :token, :now; :ids, what is left in the lease, as a JSON array, ascending; of the
--   journal also :outcome, :holder, :fence, :claimed_at and :blocks, a JSON array of arrays of ids,
--   each within one block of 1024, ascending; :setbacks, a JSON array of [id, attempts, failures,
--   crashes (to be added), last_error, available_at, lane (null: as it was)]; :back, the ids that
--   wait again, as a JSON array; :dead, a JSON array of [id, reason].
-- Returns: lease: what is held under the token.
-- Keeps: laws 3, 4, 6, 9. What is ended is taken from the lease of this token or not at all;
--   counters are raised, not set; the key of a ready row is computed from what stands in setbacks
--   and events.
-- Relies on: the primary keys.

-- statement: lease
select fence, holder, claimed_at, locked_until, ids
from tenure_leases
where token = :token;

-- statement: end_lease
delete from tenure_leases
where token = :token;

-- statement: keep_lease
update tenure_leases
set ids = :ids
where token = :token;

-- statement: journal
insert into tenure_settled (token, outcome, holder, fence, claimed_at, settled_at, lo, hi, ids)
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
