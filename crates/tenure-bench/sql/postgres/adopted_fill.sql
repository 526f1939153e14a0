-- adopted_fill: pending rows for an engine on an adopted outbox.
-- Parameters: $1 how many, $2 payload.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
insert into outbox (topic, payload)
select 'bench.event', $2::json
from generate_series(1, $1::bigint)
