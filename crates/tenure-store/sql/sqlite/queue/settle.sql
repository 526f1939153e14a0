-- settle: ends the hold on named items of a lease, each with its outcome, and on the rest if asked
--   to. Reap and bury end holds by the same statements: journal, setbacks, ready, behind, dead; and
--   whoever leaves a domain without a head gives it the next by next, promoted, heads, idle.
-- Parameters: :token, :now; :ids, what is left in the lease, as a JSON array, ascending, and :domains;
--   :keys, of domains, as a JSON array; :run, a JSON array of [ordering key, turn]; :heads, a JSON
--   array of [ordering key, id or null, whether it is dead and blocks]; of the
--   journal also :outcome, :holder, :fence, :claimed_at and :blocks, a JSON array of arrays of ids,
--   each within one block of 1024, ascending; :setbacks, a JSON array of [id, attempts, failures,
--   crashes (to be added), last_error, available_at, lane (null: as it was)]; :back, the ids that
--   wait again, as a JSON array; :dead, a JSON array of [id, reason].
-- Returns: lease: what is held under the token; next: key, and turn and id of the first that waits
--   (null: none does); whether the domain is paused.
-- Keeps: laws 3, 4, 6, 7, 9. What is ended is taken from the lease of this token or not at all;
--   counters are raised, not set; the key of a ready row is computed from what stands in setbacks
--   and events.
-- Relies on: the primary keys.

-- statement: lease
select fence, holder, claimed_at, locked_until, ids, domains
from tenure_leases
where token = :token;

-- statement: end_lease
delete from tenure_leases
where token = :token;

-- statement: keep_lease
update tenure_leases
set
    ids = :ids,
    domains = :domains
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
select named.value as ordering_key, behind.turn, behind.id, coalesce(domain.paused, 0) as paused
from json_each(:keys) as named
left join tenure_domains as domain
    on domain.ordering_key = named.value
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
insert into tenure_domains as old (ordering_key, head, blocked, since)
select value ->> 0, value ->> 1, value ->> 2, :now
from json_each(:heads)
where true
on conflict (ordering_key) do update set
    head = excluded.head,
    blocked = excluded.blocked,
    since = iif(old.paused or old.head is excluded.head, old.since, excluded.since);

-- statement: idle
delete from tenure_domains
where ordering_key in (select value from json_each(:keys));
