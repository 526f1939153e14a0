-- change: writes a decision about a domain, if the domain has not changed since it was read.
-- Parameters: $1 number of the space, $2 watermark as read, $3 domain, $4 its number as read (null: it did
--   not exist), $5 its version as read; the new reservation: $6 offset (null: none), $7 token, $8 first
--   acquired at, $9 retry count, $10 locked until; $11 offset that leaves the head of the backlog, $12
--   offset that joins its tail; terminal ranges: $13 the last offset of those to delete, $14 first offset,
--   $15 last offset and $16 kind of those to insert.
-- Returns: the domain's number, or no row if the domain has changed: read it again.
-- Keeps: of two decisions about the same version of a domain one is written. A domain that was evicted and
--   created again has another number. A new domain is created only under the watermark that was read:
--   otherwise a domain that was created, completed and evicted in between would be forgotten. So this
--   statement locks the space's row, and writes nothing if another transaction is moving the
--   watermark. Ranges are inserted after the old ones were deleted, because they may end at the
--   same offset.
-- Relies on: tenure_spaces_number_key, tenure_reservations_pkey,
--   tenure_reservations_space_number_domain_key, tenure_reservation_backlog_pkey,
--   tenure_reservation_backlog_reservation_log_offset_key, tenure_offsets_pkey.
with unpassed as materialized (
    select s.number
    from tenure_spaces s
    where $4::bigint is null and s.number = $1::int and s.watermark = $2::bigint
    for share skip locked
),
made as (
    insert into tenure_reservations
        (space_number, domain, current_offset, token, first_acquired_at, retry_count, locked_until, backlog_length)
    select u.number, $3::text, $6::bigint, $7::text, $8::timestamptz, $9::bigint, $10::timestamptz,
           ($12::bigint is not null)::int
    from unpassed u
    on conflict (space_number, domain) do nothing
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
        backlog_length = r.backlog_length + ($12::bigint is not null)::int - ($11::bigint is not null)::int
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
    insert into tenure_reservation_backlog (reservation, queue_position, log_offset)
    select w.number,
           1 + coalesce(
               (select b.queue_position
                from tenure_reservation_backlog b
                where b.reservation = w.number
                order by b.queue_position desc
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
    where o.reservation = w.number and o.last_offset = any($13::bigint[])
    returning o.last_offset
),
come as (
    insert into tenure_offsets (reservation, space_number, first_offset, last_offset, kind)
    select w.number, $1::int, n.first_offset, n.last_offset, n.kind
    from written w
    cross join unnest($14::bigint[], $15::bigint[], $16::text[]) as n(first_offset, last_offset, kind)
    where (select count(*) from gone) >= 0
)
select number
from written
