-- Version 1 of the schema, part 3 of 9: the outbox as a view, for operators and producers in any language.

-- The outbox in the words of its specification: one row per event, without the token. (The cast gives the
-- held ids a type, so that SQLite joins them with an automatic index instead of comparing each with each.)
create view tenure_outbox as
with held as materialized (
    select
        cast(held_id.value as integer) as id,
        lease.fence,
        lease.holder,
        lease.claimed_at,
        lease.locked_until
    from tenure_leases as lease, json_each(lease.ids) as held_id
)
select
    event.id,
    event.event_id,
    event.topic,
    event.ordering_key,
    queue.name as queue,
    7 - event.lane % 16 as priority,
    event.payload,
    event.headers,
    event.encoding,
    case
        when ready.id is not null or behind.id is not null then 'PENDING'
        when dead.id is not null then 'DEAD'
        when held.id is not null then 'CLAIMED'
        else 'PUBLISHED'
    end as status,
    event.created_at,
    coalesce(setback.available_at, event.available_at) as available_at,
    held.claimed_at,
    held.holder as claimed_by,
    held.locked_until,
    held.fence,
    coalesce(setback.attempts, 0) as attempts,
    coalesce(setback.failures, 0) as failures,
    coalesce(setback.crashes, 0) as crashes,
    setback.last_error,
    case
        when ready.id is null and behind.id is null and dead.id is null and held.id is null then (
            select settled.settled_at
            from tenure_settled as settled indexed by tenure_settled_id_range
            where settled.last_id between event.id and event.id | 1023
                and settled.first_id <= event.id
                and settled.outcome = 'done'
                and instr(',' || trim(settled.ids, '[]') || ',', ',' || event.id || ',') > 0
            order by settled.entry desc
            limit 1
        )
    end as published_at,
    dead.dead_at,
    dead.reason as dead_reason,
    coalesce(setback.generation, 0) as generation
from tenure_events as event
left join tenure_queues as queue
    on queue.number = event.lane / 16
left join tenure_setbacks as setback
    on setback.id = event.id
left join tenure_ready as ready
    on ready.lane = coalesce(setback.lane, event.lane)
    and ready.available_at = coalesce(setback.available_at, event.available_at)
    and ready.id = event.id
left join tenure_backlog as behind
    on behind.ordering_key = event.ordering_key
    and behind.turn = coalesce(setback.turn, event.id)
left join tenure_dead as dead
    on dead.id = event.id
left join held
    on held.id = event.id
where event.id <= 4503599627370496;

-- `insert into tenure_outbox (topic, payload) values (…)` enqueues an event, in the caller's transaction
-- and from any language. It rejects the same values as the library.
create trigger tenure_outbox_insert
instead of insert on tenure_outbox
begin
    select raise(abort, 'topic is not 1 to 255 bytes without control characters: try order.paid')
    where new.topic is null
        or typeof(new.topic) <> 'text'
        or length(cast(new.topic as blob)) not between 1 and 255
        or instr(new.topic, char(0)) > 0
        or new.topic glob
            '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
    select raise(abort, 'payload is not JSON, such as {"order": 7}')
    where new.payload is null
        or typeof(new.payload) = 'blob'
        or not json_valid(new.payload);
    -- The text may also be `\\u0000`, a backslash and five characters.
    select raise(abort, 'payload is text with the escape \u0000, which no database column can hold')
    where instr(new.payload, '\u0000') > 0
        and exists (
            select 1
            from json_tree(new.payload) as part
            where instr(part.key, char(0)) > 0
                or (part.type = 'text' and instr(part.atom, char(0)) > 0)
        );
    select raise(abort, 'payload is over 1 MiB: keep the large part elsewhere and send its address')
    where length(cast(new.payload as blob)) > 1048576;
    select raise(abort, 'encoding is neither null nor base64, or the payload is not a JSON string')
    where new.encoding is not null
        and (new.encoding <> 'base64' or json_type(new.payload) <> 'text');
    select raise(
        abort,
        'ordering key is not 1 to 255 bytes without control characters: try customer-7'
    )
    where new.ordering_key is not null
        and (
            typeof(new.ordering_key) <> 'text'
            or length(cast(new.ordering_key as blob)) not between 1 and 255
            or instr(new.ordering_key, char(0)) > 0
            or new.ordering_key glob
                '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        );
    select raise(abort, 'there is no such queue: add it with tenure queues add')
    where new.queue is not null
        and not exists (select 1 from tenure_queues where name = new.queue);
    select raise(abort, 'priority is not 0 to 7, highest first')
    where new.priority is not null
        and (typeof(new.priority) <> 'integer' or new.priority not between 0 and 7);
    select raise(abort, 'available_at is not a number of microseconds since 1970')
    where new.available_at is not null
        and typeof(new.available_at) <> 'integer';
    select raise(abort, 'event_id is not a blob of 16 bytes')
    where new.event_id is not null
        and (typeof(new.event_id) <> 'blob' or length(new.event_id) <> 16);
    select raise(abort, 'headers is not a JSON object')
    where new.headers is not null
        and (not json_valid(new.headers) or json_type(new.headers) <> 'object');
    select raise(
        abort,
        'headers is not 16 KiB at most of lower-case names and texts without control characters'
    )
    where length(cast(new.headers as blob)) > 16384
        or exists (
            select 1
            from json_each(new.headers) as header
            where header.type <> 'text'
                or length(header.key) not between 1 and 255
                or header.key glob '*[^-!#$%&''*+.^_`|~0-9a-z]*'
                or instr(header.value, char(0)) > 0
                or header.value glob
                    '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        );
    update tenure_ids
    set last_id = last_id + 1
    where kind = 'event';
    insert into tenure_events (
        id, lane, created_at, available_at, event_id, topic, ordering_key, encoding, headers, payload
    )
    values (
        (select last_id from tenure_ids where kind = 'event'),
        (
            select number
            from tenure_queues
            where name = coalesce(new.queue, 'default')
                and topic in ('', new.topic)
            order by topic desc
            limit 1
        ) * 16 + 7 - coalesce(new.priority, 0),
        strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000,
        coalesce(
            new.available_at,
            strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000
        ),
        -- A random UUID: version 4 in the seventh byte, the variant in the ninth.
        coalesce(
            new.event_id,
            cast(
                randomblob(6)
                || substr(x'404142434445464748494a4b4c4d4e4f', 1 + (random() & 15), 1)
                || randomblob(1)
                || substr(x'808182838485868788898a8b8c8d8e8f', 1 + (random() & 15), 1)
                || randomblob(7)
                as blob
            )
        ),
        new.topic,
        new.ordering_key,
        new.encoding,
        new.headers,
        new.payload
    );
    -- The tables below have no rowid, so last_insert_rowid() stays the id of the event.
    insert into tenure_keys (ordering_key, head, state_since)
    select ordering_key, id, created_at
    from tenure_events
    where id = last_insert_rowid()
        and ordering_key is not null
        and not exists (
            select 1 from tenure_keys where ordering_key = tenure_events.ordering_key
        );
    insert into tenure_ready (lane, available_at, id)
    select event.lane, event.available_at, event.id
    from tenure_events as event
    left join tenure_keys as key_row
        on key_row.ordering_key = event.ordering_key
    where event.id = last_insert_rowid()
        and (event.ordering_key is null or key_row.head = event.id);
    insert into tenure_backlog (ordering_key, turn, id, lane)
    select event.ordering_key, event.id, event.id, event.lane
    from tenure_events as event
    cross join tenure_keys as key_row
        on key_row.ordering_key = event.ordering_key
    where event.id = last_insert_rowid()
        and key_row.head is not event.id;
end;
