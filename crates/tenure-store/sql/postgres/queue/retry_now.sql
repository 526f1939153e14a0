-- retry_now: makes pending items due. Their counters stay; the journal records the order as a lease of the
-- operator that ends at once.
-- Parameters: $1 now, $2 ids, each once, $3 the operator's token, $4 the operator.
-- Returns: per id, the answer; 'locked': another transaction is changing the item (retry).
-- Keeps: laws 6, 7. It waits for no lock and changes only rows of tenure_ready, so that an item behind the
--   head of its key stays there.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_backlog_pkey,
--   tenure_dead_pkey. Leases are few and are scanned.
with item as materialized (
    select a.id, e.id is not null as is_known, coalesce(s.lane, e.lane) as lane,
           coalesce(s.available_at, e.available_at) as available_at, e.ordering_key,
           coalesce(s.turn, e.id) as turn
    from unnest($2::bigint[]) as a(id)
    left join lateral (
        select e.id, e.lane, e.available_at, e.ordering_key from tenure_events e where e.id = a.id offset 0
    ) e on true
    left join lateral (
        select s.lane, s.available_at, s.turn from tenure_setbacks s where s.id = a.id offset 0
    ) s on true
), taken as (
    delete from tenure_ready
    where ctid = any (array(
        select r.ctid
        from item i
        join tenure_ready r on r.lane = i.lane and r.available_at = i.available_at and r.id = i.id
        where i.available_at > coalesce($1::timestamptz, statement_timestamp())
        for update of r skip locked))
    returning lane, id, key_hash
), ready as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, coalesce($1::timestamptz, statement_timestamp()), id, key_hash
    from taken
), setback as (
    insert into tenure_setbacks as s (id, available_at)
    select id, coalesce($1::timestamptz, statement_timestamp())
    from taken
    order by id
    on conflict (id) do update set available_at = excluded.available_at
), journal as (
    -- In blocks of ids: a row with a long range would be read for every item in it.
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select $3::text, 'release', coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp()), $4::text,
           tenure_next_fence(), min(id), max(id), array_agg(id order by id)
    from taken
    group by id >> 10
)
select i.id,
       case
           when i.id in (select id from taken) then 'due_now'
           when not i.is_known then 'not_found'
           when (select r.id
                 from tenure_ready r
                 where r.lane = i.lane and r.available_at = i.available_at and r.id = i.id) is not null
               then case when i.available_at > coalesce($1::timestamptz, statement_timestamp()) then 'locked' else 'already_due' end
           when (select b.id
                 from tenure_backlog b
                 where b.key_hash = tenure_key_hash(i.ordering_key) and b.turn = i.turn and b.id = i.id)
               is not null then 'behind'
           when (select d.id from tenure_dead d where d.id = i.id) is not null then 'dead'
           when i.id in (select h.id from tenure_leases l cross join unnest(l.ids) as h(id)) then 'held'
           else 'done'
       end as answer
from item i
