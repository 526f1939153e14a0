-- prune: deletes settled items past their retention, among those that prune_choose.sql has locked; and old
-- journal rows that name no retained item. The calls of a delivery are deleted with it, and an event with
-- the last of its deliveries.
-- Parameters: $1 now, $2 retention of done items in microseconds, $3 that of dead ones, $4 limit, $5 the
--   locked ids, $6 the row ids (ctid) of the locked journal rows, $7 the events that are locked with their
--   deliveries.
-- Returns: one row: the numbers of deleted done and dead items, the number of journal rows deleted or
--   marked, whether a limit was reached.
-- Keeps: laws 4, 6. It checks again everything that prune_choose.sql has checked: its snapshot is newer
--   than the locks, so it shows every replay that committed before them, and no replay can begin after
--   them. A journal row stays for the timeline of a retained item, up to the longer retention; its
--   mark keeps later rounds from examining it again. An item may outlive its journal row, for
--   example an event that still has deliveries.
-- Relies on: the primary keys; tenure_events_source; tenure_dedupe_id; tenure_settled_other, from the
--   oldest; tenure_settled_id_range for items that were replayed or have deliveries. Leases are few and are
--   scanned.
with candidate as materialized (
    select id, bool_or(is_named) as is_named
    from (
        select id, true as is_named from unnest($5::bigint[]) as u(id)
        union all
        select id, false from unnest($7::bigint[]) as u(id)
    ) as c
    group by id
), past as materialized (
    select a.id, d.id is not null as is_dead
    from candidate a
    cross join lateral (
        select e.lane, e.available_at, e.ordering_key from tenure_events e where e.id = a.id offset 0
    ) e
    left join lateral (
        select s.lane, s.available_at, s.replayed_at, s.turn
        from tenure_setbacks s
        where s.id = a.id
        offset 0
    ) s on true
    left join lateral (select d.id, d.dead_at from tenure_dead d where d.id = a.id offset 0) d on true
    where (select r.id
           from tenure_ready r
           where r.lane = coalesce(s.lane, e.lane)
             and r.available_at = coalesce(s.available_at, e.available_at)
             and r.id = a.id) is null
      and (select b.id
           from tenure_backlog b
           where b.key_hash = tenure_key_hash(e.ordering_key)
             and b.turn = coalesce(s.turn, a.id)
             and b.id = a.id) is null
      and a.id not in (select i.id from tenure_leases l cross join unnest(l.ids) as i(id))
      and case
              when d.id is not null then
                  a.is_named and d.dead_at < coalesce($1::timestamptz, statement_timestamp()) - $3::bigint * interval '1 us'
              when s.replayed_at is not null or not a.is_named then coalesce((
                  select max(j.settled_at)
                  from tenure_settled j
                  where j.outcome = 'done' and int8range(j.first_id, j.last_id, '[]') @> a.id and a.id = any (j.ids)
              ) < coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 us', not a.is_named)
              else true
          end
), item as materialized (
    select p.id, p.is_dead
    from past p
    where (select x.id
           from tenure_events x
           where x.source = p.id and (x.id in (select id from past)) is not true
           limit 1) is null
), call as (
    delete from tenure_delivery_attempts
    where delivery = any (array(select id from item where id > 4503599627370496))
), event as (
    delete from tenure_events
    where id = any (array(select id from item))
), counters as (
    delete from tenure_setbacks
    where id = any (array(select id from item))
), dead as (
    delete from tenure_dead
    where id = any (array(select id from item))
), key as (
    delete from tenure_dedupe
    where id = any (array(select id from item))
), named as materialized (
    select j.row_id, j.settled_at, i.id,
           (i.id in (select id from item)) is not true
               and (select e.id from tenure_events e where e.id = i.id) is not null as is_kept,
           (i.id in (select u.id from unnest($5::bigint[]) as u(id))) is true as is_locked
    from (
        select ctid as row_id, settled_at, ids
        from tenure_settled
        where ctid = any ($6::text[]::tid[])
    ) as j
    cross join unnest(j.ids) as i(id)
), line as materialized (
    select row_id, array_agg(id order by id) filter (where is_kept) as ids,
           coalesce(bool_or(is_kept and not is_locked), false) as is_open,
           min(settled_at) < coalesce($1::timestamptz, statement_timestamp())
               - greatest($2::bigint, $3::bigint) * interval '1 us' as is_old
    from named
    group by row_id
), other as materialized (
    select ctid as row_id
    from tenure_settled
    where (outcome <> 'done' or is_pruned)
      and settled_at < coalesce($1::timestamptz, statement_timestamp())
          - greatest($2::bigint, $3::bigint) * interval '1 us'
    order by settled_at
    limit $4
    for update skip locked
), ended as (
    delete from tenure_settled
    where ctid = any (array(
        select row_id from other
        union all
        select row_id from line where ids is null or (is_old and not is_open)))
    returning 1
), pruned as (
    update tenure_settled j
    set is_pruned = true, ids = line.ids, first_id = line.ids[1], last_id = line.ids[cardinality(line.ids)]
    from line
    where j.ctid = line.row_id and line.ids is not null and not line.is_open and not line.is_old
    returning 1
)
select count(*) filter (where not is_dead) as done, count(*) filter (where is_dead) as dead,
       (select count(*) from ended) + (select count(*) from pruned) as lines,
       (select count(*) from other) >= $4 as is_cut
from item
