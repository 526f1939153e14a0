-- enqueue: writes events and their rows in ready or in the backlog.
-- Parameters: :lane, :now, :available_at, :event_id, :topic, :ordering_key, :encoding, :headers, :payload
--   of one event (run for each: a payload inside a JSON array of all events would be parsed three times)
--   with its :id; :first and :last, the assigned ids; :kind, event or delivery.
-- Returns: number: that of the topic :topic of the queue :queue if it is separate, or of the queue; last: the
--   last assigned id.
-- Keeps: laws 7, 8: all of it is in one transaction, the caller's or its own. The first event of an unknown
--   key is its head; every other event with a key waits behind.
-- Relies on: the primary keys; the ids of one transaction are consecutive, because there is one writer.

-- statement: number
select number
from tenure_queues
where name = :queue
    and topic in ('', :topic)
order by topic desc
limit 1;

-- statement: last
select last_id
from tenure_ids
where kind = :kind;

-- statement: given
update tenure_ids
set last_id = :last
where kind = :kind;

-- statement: event
insert into tenure_events (
    id, lane, created_at, available_at, event_id, topic, ordering_key, encoding, headers, payload
)
values (
    :id, :lane, :now, :available_at, :event_id, :topic, :ordering_key, :encoding, :headers, :payload
);

-- statement: heads
insert into tenure_keys (ordering_key, head, state_since)
select ordering_key, min(id), :now
from tenure_events not indexed
where id between :first and :last
    and ordering_key is not null
group by ordering_key
on conflict (ordering_key) do nothing;

-- statement: ready
insert into tenure_ready (lane, available_at, id)
select event.lane, event.available_at, event.id
from tenure_events as event
left join tenure_keys as key_row
    on key_row.ordering_key = event.ordering_key
where event.id between :first and :last
    and (event.ordering_key is null or key_row.head = event.id);

-- statement: behind
insert into tenure_backlog (ordering_key, turn, id, lane)
select event.ordering_key, event.id, event.id, event.lane
from tenure_events as event not indexed
cross join tenure_keys as key_row
    on key_row.ordering_key = event.ordering_key
where event.id between :first and :last
    and key_row.head is not event.id;
