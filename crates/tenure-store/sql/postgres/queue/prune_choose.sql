-- prune_choose: selects the rows that prune.sql may delete, and locks them until the end of the
-- transaction: old journal rows of done items, and the items that these and old dead rows name; with a
-- delivery also its event, which is deleted with the last of its deliveries.
-- Parameters: $1 now, $2 retention of done items in microseconds, $3 that of dead ones, $4 limit.
-- Returns: one row: the ids of the locked items; the row ids (ctid) of the journal rows; whether a limit
--   was reached; the events that are locked with their deliveries.
-- Keeps: laws 4, 6. A replay locks the event first, so none can begin until prune.sql has checked again. It
--   waits for no lock, so it cannot deadlock: rows that a replay, a producer with the same dedupe key or
--   another prune has locked are left for the next round. A dead item that blocks its key is kept, and so
--   is an event that has deliveries. A delivery is locked only with its event: if two prunes each delete
--   one of the last two deliveries, the second must see the deletion of the first.
-- Relies on: tenure_settled_done and tenure_dead_at, from the oldest; tenure_events_pkey,
--   tenure_events_source, tenure_keys_pkey, tenure_dedupe_id.
with old as materialized (
    select ctid as row_id, settled_at, ids
    from tenure_settled
    where outcome = 'done' and not is_pruned
      and settled_at < coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 us'
    order by settled_at
    limit $4
    for update skip locked
), counted as materialized (
    select row_id, ids,
           sum(cardinality(ids)) over (order by settled_at, row_id) - cardinality(ids) as before
    from old
), line as materialized (
    select row_id, ids
    from counted
    where before < $4
), dead as materialized (
    select id
    from tenure_dead
    where dead_at < coalesce($1::timestamptz, statement_timestamp()) - $3::bigint * interval '1 us'
      and (select k.is_blocked
           from tenure_keys k
           where k.key_hash = (
                     select tenure_key_hash(e.ordering_key) from tenure_events e where e.id = tenure_dead.id)
             and k.head = tenure_dead.id) is not true
      and (select x.id from tenure_events x where x.source = tenure_dead.id limit 1) is null
    order by dead_at
    limit $4
), named as materialized (
    select i.id from line cross join unnest(line.ids) as i(id)
    union
    select id from dead
), item as materialized (
    select e.id, e.source
    from named n
    cross join lateral (
        select e.id, e.source from tenure_events e where e.id = n.id for update skip locked
    ) e
    where (select count(*)
           from (select u.id from tenure_dedupe u where u.id = n.id for update skip locked) as free)
        = (select count(*) from tenure_dedupe u where u.id = n.id)
), owed as materialized (
    select e.id
    from (select distinct source as id from item where source is not null) as s
    cross join lateral (
        select e.id from tenure_events e where e.id = s.id for update skip locked
    ) e
    where (select count(*)
           from (select u.id from tenure_dedupe u where u.id = s.id for update skip locked) as free)
        = (select count(*) from tenure_dedupe u where u.id = s.id)
), locked as materialized (
    select id
    from item
    where source is null or (source in (select id from owed)) is true
)
select (select array_agg(id order by id) from locked) as ids,
       (select array_agg(row_id::text) from line) as row_ids,
       (select count(*) from old) >= $4 or (select count(*) from dead) >= $4
           or (select count(*) from line) < (select count(*) from old) as is_cut,
       (select array_agg(id order by id) from owed) as owed
