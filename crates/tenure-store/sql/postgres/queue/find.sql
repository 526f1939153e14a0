-- find: all facts of items, with the columns of the view tenure_outbox.
-- Parameters: $1 ids.
-- Returns: the columns of the view with the lane in place of queue and priority, in any order; for a
--   delivery also its event, which has the payload.
-- Keeps: nothing; it only reads, and it reads no token. It does not select from the view, which would
--   compare every id with every claimed one.
-- Relies on: the primary keys; tenure_settled_id_range for published_at. Leases are few and are scanned.
with held as materialized (
    select i.id, l.holder, l.fence, l.claimed_at, l.locked_until
    from tenure_leases l
    cross join unnest(l.ids) as i(id)
    where (i.id in (select a.id from unnest($1::bigint[]) as a(id))) is true
), place as materialized (
    select id, holder, fence, claimed_at, locked_until
    from held
    union all
    select a.id, null, null, null, null
    from unnest($1::bigint[]) as a(id)
    where (a.id in (select held.id from held)) is not true
)
select e.id, e.event_id, e.topic, e.ordering_key, e.lane, e.payload, e.headers, e.encoding,
       case
           when p.holder is not null then 'CLAIMED'
           when r.id is not null or b.id is not null then 'PENDING'
           when d.id is not null then 'DEAD'
           else 'PUBLISHED'
       end as status,
       e.created_at, coalesce(s.available_at, e.available_at) as available_at, p.claimed_at,
       p.holder as claimed_by, p.locked_until, p.fence, s.attempts, s.failures, s.crashes,
       coalesce(d.last_error, s.last_error) as last_error, j.published_at, d.dead_at,
       d.reason as dead_reason, s.generation, e.source
from place p
cross join lateral (select * from tenure_events e where e.id = p.id offset 0) e
left join lateral (select * from tenure_setbacks s where s.id = p.id offset 0) s on true
left join lateral (
    select r.id
    from tenure_ready r
    where r.lane = coalesce(s.lane, e.lane)
      and r.available_at = coalesce(s.available_at, e.available_at)
      and r.id = p.id
    offset 0
) r on true
left join lateral (
    select b.id
    from tenure_backlog b
    where b.key_hash = tenure_key_hash(e.ordering_key) and b.turn = coalesce(s.turn, e.id) and b.id = p.id
    offset 0
) b on true
left join lateral (select * from tenure_dead d where d.id = p.id offset 0) d on true
left join lateral (
    select max(j.settled_at) as published_at
    from tenure_settled j
    where p.holder is null and r.id is null and b.id is null and d.id is null
      and j.outcome = 'done' and int8range(j.first_id, j.last_id, '[]') @> p.id and p.id = any (j.ids)
) j on true
