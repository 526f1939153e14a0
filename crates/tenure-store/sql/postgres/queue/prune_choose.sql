-- prune_choose: chooses what prune.sql may delete, and keeps everyone else from it until the end of the
-- transaction: old journal rows of done items, and the items that these and old dead ones name; with a
-- delivery also its event, which goes with the last of its deliveries.
-- Parameters: $1 now, $2 retention of done items in us, $3 that of dead ones, $4 limit.
-- Returns: one row: the ids of the items that are locked now; the places (ctid) of the journal rows;
--   whether a limit cut something off; the events that are locked with their deliveries.
-- Keeps: laws 4, 6. A replay locks the event first, so none can begin until prune.sql has looked again.
--   It waits for nobody, so it can be in no deadlock: what a replay, a producer with the same dedupe key
--   or another prune has in hand is left for the next round. A dead item that blocks its domain is kept, and
--   an event while it is owed. A delivery is locked only with its event: of two prunes that each delete
--   one of the last two, the second must see what the first has done.
-- Relies on: tenure_settled_done and tenure_dead_at, from the oldest; tenure_events_pkey,
--   tenure_events_source, tenure_domains_pkey, tenure_dedupe_id.
with old as materialized (
    select ctid as place, settled_at, ids
    from tenure_settled
    where outcome = 'done' and not spent
      and settled_at < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 us'
    order by settled_at
    limit $4
    for update skip locked
), counted as materialized (
    select place, ids,
           sum(cardinality(ids)) over (order by settled_at, place) - cardinality(ids) as before
    from old
), line as materialized (
    select place, ids
    from counted
    where before < $4
), dead as materialized (
    select id
    from tenure_dead
    where dead_at < coalesce($1::timestamptz, now()) - $3::bigint * interval '1 us'
      and (select d.blocked
           from tenure_domains d
           where d.domain = (
                     select tenure_domain(e.ordering_key) from tenure_events e where e.id = tenure_dead.id)
             and d.head = tenure_dead.id) is not true
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
           from (select k.id from tenure_dedupe k where k.id = n.id for update skip locked) as free)
        = (select count(*) from tenure_dedupe k where k.id = n.id)
), owed as materialized (
    select e.id
    from (select distinct source as id from item where source is not null) as s
    cross join lateral (
        select e.id from tenure_events e where e.id = s.id for update skip locked
    ) e
    where (select count(*)
           from (select k.id from tenure_dedupe k where k.id = s.id for update skip locked) as free)
        = (select count(*) from tenure_dedupe k where k.id = s.id)
), locked as materialized (
    select id
    from item
    where source is null or (source in (select id from owed)) is true
)
select (select array_agg(id order by id) from locked) as ids,
       (select array_agg(place::text) from line) as places,
       (select count(*) from old) >= $4 or (select count(*) from dead) >= $4
           or (select count(*) from line) < (select count(*) from old) as is_cut,
       (select array_agg(id order by id) from owed) as owed
