-- record_calls: writes down calls that were made for deliveries.
-- Parameters: :calls, a JSON array of [delivery, fence, attempt, began_at, outcome, status, error,
--   detail as text].
-- Returns: nothing.
-- Keeps: one that is on record already stays as it is; one whose delivery was pruned is not written.
-- Relies on: the primary keys.

-- statement: record_calls
insert into tenure_delivery_attempts
    (delivery, fence, attempt, began_at, outcome, status, error, detail)
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
