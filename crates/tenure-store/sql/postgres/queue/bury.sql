-- bury: settles a pending or claimed item dead. A pending one is claimed by the operator and settled in
-- the same statement (there is no way from pending to dead); a claimed one leaves its holder's lease.
-- Parameters: $1 now, $2 id, $3 reason, $4 the operator's token, $5 the operator.
-- Returns: the id, or no row: it is neither pending nor claimed, or someone has it in hand this moment
--   (look, then ask again).
-- Keeps: laws 5, 6. It waits for nobody, so it can be in no deadlock.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey. Leases are few and are scanned.
with held as materialized (
    select token, holder, fence, claimed_at, ids
    from tenure_leases
    where $2::bigint = any (ids)
    for update skip locked
), emptied as (
    delete from tenure_leases l
    using held
    where l.token = held.token and cardinality(held.ids) = 1
), kept as (
    update tenure_leases l
    set ids = array_remove(held.ids, $2::bigint)
    from held
    where l.token = held.token and cardinality(held.ids) > 1
), event as materialized (
    select e.id, coalesce(s.lane, e.lane) as lane, coalesce(s.available_at, e.available_at) as available_at
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    where e.id = $2::bigint
), waiting as (
    delete from tenure_ready
    where ctid = any (array(
        select r.ctid
        from event e
        join tenure_ready r on r.lane = e.lane and r.available_at = e.available_at and r.id = e.id
        for update of r skip locked))
    returning id
), hold as materialized (
    select token, holder, fence, claimed_at
    from held
    union all
    select $4::text, $5::text, nextval('tenure_fence'), coalesce($1::timestamptz, now())
    from waiting
), journal as (
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, lo, hi, ids)
    select token, 'buried', coalesce($1::timestamptz, now()), claimed_at, holder, fence, $2, $2,
           array[$2::bigint]
    from hold
), setback as (
    insert into tenure_setbacks as s (id, attempts, last_error)
    select $2, 1, $3
    from hold
    on conflict (id) do update set attempts = s.attempts + 1, last_error = excluded.last_error
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select $2, coalesce($1::timestamptz, now()), 'buried', $3
    from hold
)
select $2::bigint as id
from hold
