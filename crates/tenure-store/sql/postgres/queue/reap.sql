-- reap: ends lapsed leases; their items are ready again with their counters moved, or dead.
-- Parameters: $1 now, $2 limit (leases), $3 whether a term that ends this moment counts, $4 crash
--   budget, $5 delays in us by number of lapses, $6 lapses from which an item is claimed alone.
-- Returns: per item: id, holder, fence, stale time in microseconds, crashes, is_dead, available_at.
-- Keeps: laws 5, 6: the predicate is checked again on the locked row; what another reap or a settle
--   holds is skipped. The counters read here are right: nobody but the holder of the locked lease moves
--   them.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey. Leases are few and are scanned.
with lapsed as materialized (
    select token, holder, fence, claimed_at, locked_until, ids
    from tenure_leases
    where locked_until < coalesce($1::timestamptz, now())
       or ($3::boolean and locked_until = coalesce($1::timestamptz, now()))
    order by locked_until
    limit $2
    for update skip locked
), item as materialized (
    select l.holder, l.fence, l.locked_until, i.id, e.lane as own_lane, n.crashes,
           n.crashes > $4::int as is_dead,
           case when n.crashes >= $6::int then (e.lane >> 4) * 16 + 8 else s.lane end as lane,
           case when n.crashes <= $4::int then
               coalesce($1::timestamptz, now())
                   + ($5::bigint[])[least(n.crashes, cardinality($5::bigint[]))] * interval '1 us'
           end as available_at
    from lapsed l
    cross join unnest(l.ids) as i(id)
    cross join lateral (select lane from tenure_events e where e.id = i.id offset 0) e
    left join lateral (
        select crashes, lane from tenure_setbacks s where s.id = i.id offset 0
    ) s on true
    cross join lateral (select coalesce(s.crashes, 0) + 1 as crashes) n
), ended as (
    delete from tenure_leases l
    using lapsed
    where l.token = lapsed.token
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'lapsed', coalesce($1::timestamptz, now()), claimed_at, holder, fence, ids[1],
           ids[cardinality(ids)], ids
    from lapsed
), setback as (
    insert into tenure_setbacks as s (id, attempts, crashes, last_error, lane, available_at)
    select id, 1, 1, case when is_dead then 'crash_loop: lease lapsed' else 'lease lapsed' end,
           lane, available_at
    from item
    on conflict (id) do update set
        attempts = s.attempts + 1,
        crashes = s.crashes + 1,
        last_error = excluded.last_error,
        lane = excluded.lane,
        available_at = coalesce(excluded.available_at, s.available_at)
), back as (
    insert into tenure_ready (lane, available_at, id)
    select coalesce(lane, own_lane), available_at, id
    from item
    where not is_dead
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select id, coalesce($1::timestamptz, now()), 'crash_loop', 'crash_loop: lease lapsed'
    from item
    where is_dead
)
select id, holder, fence, crashes, is_dead, available_at,
       (extract(epoch from coalesce($1::timestamptz, now()) - locked_until) * 1000000)::bigint
           as stale_us
from item
order by locked_until, id
