-- prune: deletes terminal ranges that end below a bound, and the domains that then have nothing.
-- Parameters: $1 space, $2 kind, $3 bound, $4 limit.
-- Returns: how many ranges were found, how many of them and how many domains were deleted.
-- Keeps: ranges go whole. A domain goes only while it is idle, with an empty backlog and no range; and
--   only if its version still stands, so that nothing that came meanwhile goes with it. The version
--   moves, so that of two pruners that each take a part of a domain's ranges the second looks again
--   and sees that it is the last.
-- Relies on: tenure_watermarks_pkey, tenure_offsets_age, tenure_reservations_pkey, tenure_offsets_pkey.
with due as materialized (
    select o.reservation, o.hi
    from tenure_offsets o
    where o.space = (select s.number from tenure_watermarks s where s.space = $1::text)
      and o.kind = $2::text
      and o.hi < $3::bigint
    order by o.hi
    limit $4
),
seen as materialized (
    select r.number, r.version, d.his
    from (select reservation, array_agg(hi) as his from due group by reservation) as d
    join tenure_reservations r on r.number = d.reservation
),
held as materialized (
    select r.number,
           seen.his,
           r.current_offset is null and r.queued = 0 and not exists (
               select 1
               from tenure_offsets o
               where o.reservation = r.number and o.hi <> all(seen.his)
           ) as is_empty
    from seen
    join tenure_reservations r on r.number = seen.number and r.version = seen.version
    for update of r skip locked
),
gone as (
    delete from tenure_offsets o
    using held
    where o.reservation = held.number and o.hi = any(held.his)
    returning o.hi
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
