-- change: writes what was decided about a domain, if nothing of it has changed since it was seen.
-- Parameters: $1 number of the space, $2 watermark as seen, $3 domain, $4 its number as seen (null:
--   there was none), $5 its version as seen; the reservation as it is from now on, $6 offset (null:
--   none), $7 token, $8 first acquired at, $9 retry count, $10 locked until; $11 offset that leaves
--   the head of the backlog, $12 offset that joins its tail; terminal ranges: $13 hi of those that go,
--   $14 lo, $15 hi and $16 kind of those that come.
-- Returns: the domain's number, or no row when it has changed: look again.
-- Keeps: of two decisions about one view of a domain one is written. A domain that was evicted and
--   made again has another number. A new domain is made only under the watermark that was seen: else
--   one that came, finished and was evicted meanwhile would be forgotten. So the space's row is held
--   for this one statement, and if it is just being moved, look again. Ranges come after the old ones
--   have gone: they may end at the same offset.
-- Relies on: tenure_watermarks_number_key, tenure_reservations_pkey,
--   tenure_reservations_space_domain_key, tenure_reservation_backlog_pkey,
--   tenure_reservation_backlog_reservation_log_offset_key, tenure_offsets_pkey.
with unpassed as materialized (
    select s.number
    from tenure_watermarks s
    where $4::bigint is null and s.number = $1::int and s.watermark = $2::bigint
    for share skip locked
),
made as (
    insert into tenure_reservations
        (space, domain, current_offset, token, first_acquired_at, retry_count, locked_until, queued)
    select u.number, $3::text, $6::bigint, $7::text, $8::timestamptz, $9::bigint, $10::timestamptz,
           ($12::bigint is not null)::int
    from unpassed u
    on conflict (space, domain) do nothing
    returning number
),
moved as (
    update tenure_reservations r
    set version = r.version + 1,
        current_offset = $6::bigint,
        token = $7::text,
        first_acquired_at = $8::timestamptz,
        retry_count = $9::bigint,
        locked_until = $10::timestamptz,
        queued = r.queued + ($12::bigint is not null)::int - ($11::bigint is not null)::int
    where r.number = $4::bigint and r.version = $5::bigint
    returning number
),
written as materialized (
    select number from made
    union all
    select number from moved
),
popped as (
    delete from tenure_reservation_backlog b
    using written w
    where b.reservation = w.number and b.log_offset = $11::bigint
),
pushed as (
    insert into tenure_reservation_backlog (reservation, place, log_offset)
    select w.number,
           1 + coalesce(
               (select b.place
                from tenure_reservation_backlog b
                where b.reservation = w.number
                order by b.place desc
                limit 1),
               0
           ),
           $12::bigint
    from written w
    where $12::bigint is not null
),
gone as (
    delete from tenure_offsets o
    using written w
    where o.reservation = w.number and o.hi = any($13::bigint[])
    returning o.hi
),
come as (
    insert into tenure_offsets (reservation, space, lo, hi, kind)
    select w.number, $1::int, n.lo, n.hi, n.kind
    from written w
    cross join unnest($14::bigint[], $15::bigint[], $16::text[]) as n(lo, hi, kind)
    where (select count(*) from gone) >= 0
)
select number
from written
