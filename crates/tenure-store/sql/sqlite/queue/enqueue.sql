-- enqueue: writes events and their places in the queue.
-- Parameters: :lane, :now, :available_at, :event_id, :topic, :encoding, :headers, :payload of one
--   event (run for each: a payload wrapped into a JSON array of all would be parsed three times
--   over); :first and :last, the ids that were given.
-- Returns: queues: name and number of every queue.
-- Keeps: law 8: all of it is in one transaction, the caller's or one of its own.
-- Relies on: the primary key of tenure_events; ids of one transaction follow each other, since
--   there is one writer.

-- statement: queues
select name, number
from tenure_queues;

-- statement: event
insert into tenure_events
    (lane, created_at, available_at, event_id, topic, encoding, headers, payload)
values
    (:lane, :now, :available_at, :event_id, :topic, :encoding, :headers, :payload);

-- statement: ready
insert into tenure_ready (lane, available_at, id)
select lane, available_at, id
from tenure_events
where id between :first and :last;
