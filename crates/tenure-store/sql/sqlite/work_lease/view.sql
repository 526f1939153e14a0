-- view: all inputs of a decision about one domain and one offset, in one transaction.
-- Parameters: :space, :domain; :number, the domain's; :offset (near: null if none is in flight).
-- Returns: space: number, watermark, forgiven_below; domain: number, version, current offset, token, first
--   acquired at, retry count, locked until, length of the backlog; head: the offset that waits first;
--   queued: whether the offset waits; near: first offset, last offset and kind of the first two terminal
--   ranges that end at the offset's left neighbour or later: they show whether the offset is terminal, and
--   which ranges it joins when it becomes so.
-- Keeps: change.sql writes the decision in the same transaction.
-- Relies on: the primary keys, and the unique indexes on the space, on space and domain, and on domain
--   and offset.

-- statement: space
select number, watermark, forgiven_below
from tenure_spaces
where space = :space;

-- statement: domain
select
    number, version, current_offset, token, first_acquired_at, retry_count, locked_until, backlog_length
from tenure_reservations
where space_number = :space and domain = :domain;

-- statement: head
select log_offset
from tenure_reservation_backlog
where reservation = :number
order by queue_position
limit 1;

-- statement: queued
select exists (
    select 1
    from tenure_reservation_backlog
    where reservation = :number and log_offset = :offset
);

-- statement: near
select first_offset, last_offset, kind
from tenure_offsets
-- The smallest number has no left neighbour.
where reservation = :number and last_offset >= max(:offset, -9223372036854775807) - 1
order by last_offset
limit 2;
