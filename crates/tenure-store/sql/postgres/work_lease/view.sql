-- view: all inputs of a decision about one domain and one offset, in one snapshot.
-- Parameters: $1 now, $2 space, $3 domain, $4 offset (null: the one in flight).
-- Returns: one row, or two: now, the space's number (null: the space does not exist) and watermark; the
--   domain's number (null: it does not exist), version, current offset, token, first acquired at, retry
--   count, locked until and length of the backlog; its head; whether the offset is queued; first offset,
--   last offset and kind of a terminal range; the bound below which failed offsets are forgotten. The
--   ranges are the first two that end at the offset's left neighbour or later: they show whether the offset
--   is terminal, and which ranges it joins when it becomes so.
-- Keeps: nothing is locked. change.sql writes the decision, if the version has not changed.
-- Relies on: tenure_spaces_pkey, tenure_reservations_space_number_domain_key,
--   tenure_reservation_backlog_pkey, tenure_reservation_backlog_reservation_log_offset_key,
--   tenure_offsets_pkey.
select coalesce($1::timestamptz, statement_timestamp()),
       s.number,
       s.watermark,
       r.number,
       r.version,
       r.current_offset,
       r.token,
       r.first_acquired_at,
       r.retry_count,
       r.locked_until,
       r.backlog_length,
       (select b.log_offset
        from tenure_reservation_backlog b
        where b.reservation = r.number
        order by b.queue_position
        limit 1),
       exists (
           select 1
           from tenure_reservation_backlog b
           where b.reservation = r.number and b.log_offset = coalesce($4::bigint, r.current_offset)
       ),
       o.first_offset,
       o.last_offset,
       o.kind,
       s.forgiven_below
from (values (1)) as one(row)
left join tenure_spaces s on s.space = $2::text
left join tenure_reservations r on r.space_number = s.number and r.domain = $3::text
left join lateral (
    select t.first_offset, t.last_offset, t.kind
    from tenure_offsets t
    where t.reservation = r.number
      -- The smallest number has no left neighbour.
      and t.last_offset >= greatest(coalesce($4::bigint, r.current_offset), -9223372036854775807) - 1
    order by t.last_offset
    limit 2
) o on true
order by o.last_offset
