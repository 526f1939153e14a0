-- replay: puts settled items back as a new generation.
-- Parameters: $1 now, $2 ids.
-- Returns: the ids that were put back.
-- Keeps: laws 4, 6: only what is in none of the other places, or dead. Of two replays of one item at
--   once one wins: the generation is compared and raised. Sorted, so that they cannot wait crosswise.
--   The event is locked first: what a prune has in hand is waited for, and then gone or as before.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_dead_pkey. Leases are
--   few and are scanned.
with settled as materialized (
    select e.id, e.lane, coalesce(s.generation, 0) as generation
    from unnest($2::bigint[]) as a(id)
    cross join lateral (
        select e.id, e.lane, e.available_at from tenure_events e where e.id = a.id for key share
    ) e
    left join lateral (
        select s.lane, s.available_at, s.generation from tenure_setbacks s where s.id = a.id offset 0
    ) s on true
    where (select r.id
           from tenure_ready r
           where r.lane = coalesce(s.lane, e.lane)
             and r.available_at = coalesce(s.available_at, e.available_at)
             and r.id = e.id) is null
      and e.id not in (select i.id from tenure_leases l cross join unnest(l.ids) as i(id))
), opened as (
    insert into tenure_setbacks as s (id, generation, available_at, replayed_at)
    select id, generation + 1, coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now())
    from settled
    order by id
    on conflict (id) do update set
        generation = s.generation + 1,
        attempts = 0,
        failures = 0,
        crashes = 0,
        last_error = null,
        lane = null,
        available_at = excluded.available_at,
        replayed_at = excluded.replayed_at
        where s.generation = excluded.generation - 1
    returning id
), raised as (
    delete from tenure_dead
    where id = any (array(select id from opened))
), back as (
    insert into tenure_ready (lane, available_at, id)
    select e.lane, coalesce($1::timestamptz, now()), e.id
    from opened o
    cross join lateral (select e.id, e.lane from tenure_events e where e.id = o.id offset 0) e
)
select id
from opened
