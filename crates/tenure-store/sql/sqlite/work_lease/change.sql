-- change: writes a decision about a domain, in the transaction in which the domain was read.
-- Parameters: :space, its number; :domain; :number, the domain's; the new reservation: :current_offset
--   (null: none), :token, :first_acquired_at, :retry_count, :locked_until; :pushed and :popped, 1 or 0;
--   :offset that leaves the head of the backlog or joins its tail; :first, :last and :kind of a range.
-- Returns: made: the number of the new domain.
-- Keeps: the statement `moved` raises the version. Ranges are inserted after the old ones were
--   deleted, because they may end at the same offset.
-- Relies on: the primary keys, and the unique indexes on space and domain, and on domain and
--   offset.

-- statement: made
insert into tenure_reservations (
    space_number, domain, current_offset, token, first_acquired_at, retry_count, locked_until, backlog_length
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
    backlog_length = backlog_length + :pushed - :popped
where number = :number;

-- statement: popped
delete from tenure_reservation_backlog
where reservation = :number and log_offset = :offset;

-- statement: pushed
insert into tenure_reservation_backlog (reservation, queue_position, log_offset)
values (
    :number,
    1 + coalesce(
        (
            select queue_position
            from tenure_reservation_backlog
            where reservation = :number
            order by queue_position desc
            limit 1
        ),
        0
    ),
    :offset
);

-- statement: gone
delete from tenure_offsets
where reservation = :number and last_offset = :last;

-- statement: come
insert into tenure_offsets (reservation, space_number, first_offset, last_offset, kind)
values (:number, :space, :first, :last, :kind);
