-- subscriptions: the enabled endpoints with their settings.
-- Parameters: none.
-- Returns: per enabled endpoint: number, id, settings.
-- Keeps: nothing; it only reads.
-- Relies on: nothing: endpoints are few.

-- statement: subscriptions
select number, id, settings
from tenure_endpoints
where state = 'enabled'
order by id;
