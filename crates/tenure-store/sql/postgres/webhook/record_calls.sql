-- record_calls: records calls.
-- Parameters: $1 now, $2 deliveries, $3 fences, $4 attempts, $5 the age of each call's start in
--   microseconds, $6 outcomes, $7 statuses, $8 errors, $9 details, $10 whether all deliveries are known to
--   exist.
-- Returns: nothing.
-- Keeps: a recorded call does not change. A call of a pruned delivery is not recorded.
--   Rows are written in sorted order, so that two transactions cannot deadlock.
-- Relies on: tenure_delivery_attempts_pkey, tenure_events_pkey.
insert into tenure_delivery_attempts
    (delivery, fence, attempt, began_at, outcome, http_status, error, detail)
select c.delivery, c.fence, c.attempt, coalesce($1::timestamptz, statement_timestamp()) - c.ago * interval '1 us', c.outcome,
       c.http_status, c.error, c.detail::json
from unnest($2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::text[], $7::int[], $8::text[],
            $9::text[])
    as c(delivery, fence, attempt, ago, outcome, http_status, error, detail)
where $10::boolean
   or (select e.source from tenure_events e where e.id = c.delivery) is not null
order by c.delivery, c.fence
on conflict (delivery, fence) do nothing
