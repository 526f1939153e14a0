-- view: everything that a decision about one domain and one offset needs, in one transaction.
-- Parameters: :space, :domain; :number, the domain's; :offset (near: null where none is in flight).
-- Returns: space: number, watermark, forgiven; domain: number, version, current offset, token, first acquired
--   at, retry count, locked until, length of the backlog; head: the offset that waits first; queued:
--   whether the offset waits; near: lo, hi, kind of the first two terminal ranges that end at the
--   offset's left neighbour or later: they tell whether it is terminal, and what it joins when it
--   becomes so.
-- Keeps: what is decided is written by change.sql in the same transaction.
-- Relies on: the primary keys, and the unique space, space and domain, domain and offset.

-- statement: space
select number, watermark, forgiven
from tenure_watermarks
where space = :space;

-- statement: domain
select
    number, version, current_offset, token, first_acquired_at, retry_count, locked_until, queued
from tenure_reservations
where space = :space and domain = :domain;

-- statement: head
select log_offset
from tenure_reservation_backlog
where reservation = :number
order by place
limit 1;

-- statement: queued
select exists (
    select 1
    from tenure_reservation_backlog
    where reservation = :number and log_offset = :offset
);

-- statement: near
select lo, hi, kind
from tenure_offsets
-- The left neighbour of the least number would be none.
where reservation = :number and hi >= max(:offset, -9223372036854775807) - 1
order by hi
limit 2;
