-- change: writes what was decided about a domain, in the transaction in which it was seen.
-- Parameters: :space, its number; :domain; :number, the domain's; the reservation as it is from now
--   on: :current_offset (null: none), :token, :first_acquired_at, :retry_count, :locked_until;
--   :pushed and :popped, 1 or 0; :offset that leaves the head of the backlog or joins its tail; :lo,
--   :hi and :kind of a range.
-- Returns: made: the number of the new domain.
-- Keeps: moved: the version rises. Ranges come after the old ones have gone: they may end at the same
--   offset.
-- Relies on: the primary keys, and the unique domain and offset.

-- statement: made
insert into tenure_reservations (
    space, domain, current_offset, token, first_acquired_at, retry_count, locked_until, queued
)
values (
    :space, :domain, :current_offset, :token, :first_acquired_at, :retry_count, :locked_until,
    :pushed
)
returning number;

-- statement: moved
update tenure_reservations
set
    version = version + 1,
    current_offset = :current_offset,
    token = :token,
    first_acquired_at = :first_acquired_at,
    retry_count = :retry_count,
    locked_until = :locked_until,
    queued = queued + :pushed - :popped
where number = :number;

-- statement: popped
delete from tenure_reservation_backlog
where reservation = :number and log_offset = :offset;

-- statement: pushed
insert into tenure_reservation_backlog (reservation, place, log_offset)
values (
    :number,
    1 + coalesce(
        (
            select place
            from tenure_reservation_backlog
            where reservation = :number
            order by place desc
            limit 1
        ),
        0
    ),
    :offset
);

-- statement: gone
delete from tenure_offsets
where reservation = :number and hi = :hi;

-- statement: come
insert into tenure_offsets (reservation, space, lo, hi, kind)
values (:number, :space, :lo, :hi, :kind);
