-- view: everything that a decision about one domain and one offset needs, in one snapshot.
-- Parameters: $1 now, $2 space, $3 domain, $4 offset (null: the one in flight).
-- Returns: one row, or two: now, the space's number (null: there is no such space) and watermark;
--   the domain's number (null: there is no such domain), version, current offset, token, first
--   acquired at, retry count, locked until and length of the backlog; its head; whether the offset is
--   queued; lo, hi and kind of a terminal range; how far failures
--   are forgiven. The ranges are the first two that end at the offset's
--   left neighbour or later: they tell whether it is terminal, and what it joins when it becomes so.
-- Keeps: nothing is locked. What is decided is written by change.sql, if the version still stands.
-- Relies on: tenure_watermarks_pkey, tenure_reservations_space_domain_key,
--   tenure_reservation_backlog_pkey, tenure_reservation_backlog_reservation_log_offset_key,
--   tenure_offsets_pkey.
select coalesce($1::timestamptz, now()),
       s.number,
       s.watermark,
       r.number,
       r.version,
       r.current_offset,
       r.token,
       r.first_acquired_at,
       r.retry_count,
       r.locked_until,
       r.queued,
       (select b.log_offset
        from tenure_reservation_backlog b
        where b.reservation = r.number
        order by b.place
        limit 1),
       exists (
           select 1
           from tenure_reservation_backlog b
           where b.reservation = r.number and b.log_offset = coalesce($4::bigint, r.current_offset)
       ),
       o.lo,
       o.hi,
       o.kind,
       s.forgiven
from (values (1)) as one(row)
left join tenure_watermarks s on s.space = $2::text
left join tenure_reservations r on r.space = s.number and r.domain = $3::text
left join lateral (
    select t.lo, t.hi, t.kind
    from tenure_offsets t
    where t.reservation = r.number
      -- The left neighbour of the least number would be none.
      and t.hi >= greatest(coalesce($4::bigint, r.current_offset), -9223372036854775807) - 1
    order by t.hi
    limit 2
) o on true
order by o.hi
