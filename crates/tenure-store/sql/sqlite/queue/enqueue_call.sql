-- enqueue_call: writes one event, for callers with another driver.
-- Parameters: all texts or null; ?1 topic, ?2 payload, ?3 ordering key, ?4 queue, ?5 priority, ?6 delay in
--   microseconds, ?7 headers as JSON, ?8 encoding, ?9 event_id in hexadecimal digits.
-- Returns: event: nothing; id: the id of the last event, which is this one in its transaction.
-- Keeps: the event exists if and only if the caller's transaction commits.
-- Relies on: the trigger of the view, which checks everything again.

-- statement: event
insert into tenure_outbox (
    topic, payload, ordering_key, queue, priority, available_at, headers, encoding, event_id
)
values (
    ?1,
    ?2,
    ?3,
    ?4,
    cast(?5 as integer),
    strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000
        + cast(?6 as integer),
    ?7,
    ?8,
    unhex(?9)
);

-- statement: id
select last_id from tenure_ids where kind = 'event'
