-- prune: deletes terminal ranges that end below a bound, and the domains that are empty then.
-- Parameters: $1 space, $2 kind, $3 bound, $4 limit.
-- Returns: the number of ranges found, of ranges deleted and of domains deleted.
-- Keeps: only whole ranges are deleted. A domain is deleted only while it is idle, with an empty backlog
--   and no range, and only if its version has not changed, so that nothing new is deleted with it. Pruning
--   raises the version: if two pruners each delete a part of a domain's ranges, the second reads again and
--   sees that it deleted the last one.
-- Relies on: tenure_spaces_pkey, tenure_offsets_prunable, tenure_reservations_pkey, tenure_offsets_pkey.
with due as materialized (
    select o.reservation, o.last_offset
    from tenure_offsets o
    where o.space_number = (select s.number from tenure_spaces s where s.space = $1::text)
      and o.kind = $2::text
      and o.last_offset < $3::bigint
    order by o.last_offset
    limit $4
),
seen as materialized (
    select r.number, r.version, d.last_offsets
    from (select reservation, array_agg(last_offset) as last_offsets from due group by reservation) as d
    join tenure_reservations r on r.number = d.reservation
),
held as materialized (
    select r.number,
           seen.last_offsets,
           r.current_offset is null and r.backlog_length = 0 and not exists (
               select 1
               from tenure_offsets o
               where o.reservation = r.number and o.last_offset <> all(seen.last_offsets)
           ) as is_empty
    from seen
    join tenure_reservations r on r.number = seen.number and r.version = seen.version
    for update of r skip locked
),
gone as (
    delete from tenure_offsets o
    using held
    where o.reservation = held.number and o.last_offset = any(held.last_offsets)
    returning o.last_offset
),
evicted as (
    delete from tenure_reservations r
    using held
    where r.number = held.number and held.is_empty
    returning r.number
),
kept as (
    update tenure_reservations r
    set version = r.version + 1
    from held
    where r.number = held.number and not held.is_empty
)
select (select count(*) from due), (select count(*) from gone), (select count(*) from evicted)
