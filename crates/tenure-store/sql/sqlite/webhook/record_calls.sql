-- record_calls: records calls made for deliveries.
-- Parameters: :calls, a JSON array of [delivery, fence, attempt, began_at, outcome, status, error, detail
--   as text].
-- Returns: nothing.
-- Keeps: a recorded call does not change; a call of a pruned delivery is not recorded.
-- Relies on: the primary keys.

-- statement: record_calls
insert into tenure_delivery_attempts
    (delivery, fence, attempt, began_at, outcome, http_status, error, detail)
select
    call.value ->> 0,
    call.value ->> 1,
    call.value ->> 2,
    call.value ->> 3,
    call.value ->> 4,
    call.value ->> 5,
    call.value ->> 6,
    call.value ->> 7
from json_each(:calls) as call
cross join tenure_events as event
    on event.id = call.value ->> 0
where event.source is not null
on conflict (delivery, fence) do nothing;
