-- fan_out: writes a delivery for each event and subscribed endpoint, in the transaction of the settle that
-- made the event done. The statements of enqueue put the deliveries into ready or the backlog.
-- Parameters: :owed, a JSON array of [event, number and name of the endpoint]; :last, the last id assigned
--   to a delivery; :now.
-- Returns: nothing.
-- Keeps: law 8: one delivery per event and endpoint; ids without gaps, in the order of :owed.
-- Relies on: tenure_events_source; the primary key of tenure_events.

-- statement: fan_out
insert into tenure_events
    (id, lane, created_at, available_at, source, event_id, topic, ordering_key)
select
    :last + row_number() over (order by named.key),
    (named.value ->> 1) * 16 + event.lane % 16,
    :now,
    :now,
    event.id,
    event.event_id,
    event.topic,
    named.value ->> 2 || '/' || event.ordering_key
from json_each(:owed) as named
cross join tenure_events as event
    on event.id = named.value ->> 0
where not exists (
    select 1
    from tenure_events as there
    where there.source = event.id
        and there.lane / 16 = named.value ->> 1
);
