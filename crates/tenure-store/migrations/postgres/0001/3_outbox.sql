-- Version 1 of the schema, part 3 of 9: the outbox as a view, for operators and producers in any language.

-- The outbox in the words of its specification: one row per event. Each branch of the union has a constant
-- status, so that `where status = …` removes the branches of the other states; `where id = …` is pushed
-- into each branch. The table keeps the payload byte for byte, as json; payload_jsonb is for readers that
-- want operators on it, and an insert may give it instead of payload.
create view tenure_outbox as
with event as not materialized (
    select e.id, e.event_id, e.topic, e.ordering_key, q.name as queue,
           (7 - (e.lane & 15))::smallint as priority, e.payload, e.headers, e.encoding, e.created_at,
           coalesce(s.lane, e.lane) as lane, coalesce(s.available_at, e.available_at) as available_at,
           tenure_key_hash(e.ordering_key) as key_hash, coalesce(s.turn, e.id) as turn,
           coalesce(s.attempts, 0) as attempts, coalesce(s.failures, 0) as failures,
           coalesce(s.crashes, 0) as crashes, s.last_error, coalesce(s.generation, 0) as generation
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    left join tenure_queues q on q.number = e.lane >> 4
    where e.id <= 4503599627370496
)
select e.id, e.event_id, e.topic, e.ordering_key, e.queue, e.priority, e.payload, e.headers, e.encoding,
       'PENDING'::text as status, e.created_at, e.available_at, null::timestamptz as claimed_at,
       null::text as claimed_by, null::timestamptz as locked_until, null::bigint as fence, e.attempts,
       e.failures, e.crashes, e.last_error, null::timestamptz as published_at,
       null::timestamptz as dead_at, null::text as dead_reason, e.generation,
       e.payload::jsonb as payload_jsonb
from event e
join tenure_ready r on r.lane = e.lane and r.available_at = e.available_at and r.id = e.id
union all
select e.id, e.event_id, e.topic, e.ordering_key, e.queue, e.priority, e.payload, e.headers, e.encoding,
       'PENDING', e.created_at, e.available_at, null, null, null, null, e.attempts, e.failures, e.crashes,
       e.last_error, null, null, null, e.generation, e.payload::jsonb
from event e join tenure_backlog b on b.key_hash = e.key_hash and b.turn = e.turn and b.id = e.id
union all
select e.id, e.event_id, e.topic, e.ordering_key, e.queue, e.priority, e.payload, e.headers, e.encoding,
       'CLAIMED', e.created_at, e.available_at, l.claimed_at, l.holder, l.locked_until, l.fence,
       e.attempts, e.failures, e.crashes, e.last_error, null, null, null, e.generation,
       e.payload::jsonb
from tenure_leases l cross join unnest(l.ids) as i(id) join event e on e.id = i.id
union all
select e.id, e.event_id, e.topic, e.ordering_key, e.queue, e.priority, e.payload, e.headers, e.encoding,
       'DEAD', e.created_at, e.available_at, null, null, null, null, e.attempts, e.failures, e.crashes,
       d.last_error, null, d.dead_at, d.reason, e.generation, e.payload::jsonb
from tenure_dead d join event e on e.id = d.id
union all
select e.id, e.event_id, e.topic, e.ordering_key, e.queue, e.priority, e.payload, e.headers, e.encoding,
       'PUBLISHED', e.created_at, e.available_at, null, null, null, null, e.attempts, e.failures,
       e.crashes, e.last_error,
       (select max(j.settled_at) from tenure_settled j
        where j.outcome = 'done' and int8range(j.first_id, j.last_id, '[]') @> e.id and e.id = any (j.ids)),
       null, null, e.generation, e.payload::jsonb
from event e
where not exists (select from tenure_ready r
                  where r.lane = e.lane and r.available_at = e.available_at and r.id = e.id)
  and not exists (select from tenure_leases l cross join unnest(l.ids) as i(id) where i.id = e.id)
  and not exists (select from tenure_dead d where d.id = e.id)
  and not exists (select from tenure_backlog b
                  where b.key_hash = e.key_hash and b.turn = e.turn and b.id = e.id);
alter view tenure_outbox alter column queue set default 'default';
alter view tenure_outbox alter column priority set default 0;

-- Writes one event and puts it into ready or into the backlog of its key. tenure_enqueue and an insert into
-- the view call it.
create function tenure_insert_event(event tenure_outbox) returns tenure_outbox
language plpgsql set search_path from current as $$
declare
    queue_number int;
begin
    if coalesce(event.topic, '') = '' or octet_length(event.topic) > 255 then
        raise exception 'topic is %; expected 1 to 255 bytes, such as order.paid',
            case when coalesce(event.topic, '') = '' then 'empty' else octet_length(event.topic) || ' bytes long' end
            using errcode = 'check_violation';
    end if;
    if event.topic ~ '[[:cntrl:]]' then
        raise exception 'topic has a control character; expected 1 to 255 bytes, such as order.paid'
            using errcode = 'check_violation';
    end if;
    event.payload := coalesce(event.payload, event.payload_jsonb::json);
    if event.payload is null or octet_length(event.payload::text) > 1048576 then
        raise exception 'payload is %; expected JSON of at most 1048576 bytes (1 MiB)',
            coalesce(octet_length(event.payload::text) || ' bytes long', 'null')
            using errcode = 'check_violation';
    end if;
    if strpos(event.payload::text, E'\\u') > 0 then
        if event.payload::text ~ E'(^|[^\\\\])(\\\\\\\\)*\\\\u0000' then
            raise exception E'payload is text with the escape \\u0000; expected text without it'
                using errcode = 'check_violation', detail = 'text and jsonb cannot hold this character';
        end if;
        if getdatabaseencoding() = 'UTF8' then
            perform event.payload::jsonb;    -- refuses half of a surrogate pair
        end if;
    end if;
    if octet_length(event.ordering_key) not between 1 and 255 then
        raise exception 'ordering key is %; expected 1 to 255 bytes, such as customer-7',
            case when event.ordering_key = '' then 'empty' else octet_length(event.ordering_key) || ' bytes long' end
            using errcode = 'check_violation';
    end if;
    if event.ordering_key ~ '[[:cntrl:]]' then
        raise exception 'ordering key has a control character; expected 1 to 255 bytes, such as customer-7'
            using errcode = 'check_violation';
    end if;
    if coalesce(event.priority, 0) not between 0 and 7 then
        raise exception 'priority is %; expected 0 to 7, highest first', event.priority
            using errcode = 'check_violation';
    end if;
    if event.headers is not null and json_typeof(event.headers) <> 'object' then
        raise exception 'headers is a JSON %; expected an object of strings', json_typeof(event.headers)
            using errcode = 'check_violation';
    end if;
    if event.headers is not null and (
        octet_length(event.headers::text) > 16384
        or strpos(event.headers::text, E'\\u0000') > 0
        or exists (select from json_each(event.headers) h where json_typeof(h.value) <> 'string')
    ) then
        raise exception E'headers has a value that is not a string, has the escape \\u0000, or is over 16 KiB'
            using errcode = 'check_violation';
    end if;
    event.queue := coalesce(event.queue, 'default');
    select q.number into queue_number
    from tenure_queues q
    where q.name = event.queue and q.topic in ('', event.topic)
    order by q.topic desc
    limit 1;
    if queue_number is null then
        raise exception 'there is no queue %', quote_literal(event.queue)
            using errcode = 'foreign_key_violation', hint = format('add it with: tenure queues add %s', event.queue);
    end if;
    event.id := coalesce(event.id, nextval('tenure_event_id'));
    event.event_id := coalesce(event.event_id, gen_random_uuid());
    event.available_at := coalesce(event.available_at, now());
    event.created_at := now();
    insert into tenure_events
        (id, event_id, topic, ordering_key, lane, payload, headers, encoding, created_at, available_at)
    values (event.id, event.event_id, event.topic, event.ordering_key,
            queue_number * 16 + 7 - coalesce(event.priority, 0), event.payload, event.headers,
            event.encoding, event.created_at, event.available_at);
    if event.ordering_key is null then
        insert into tenure_ready (lane, available_at, id)
        values (queue_number * 16 + 7 - coalesce(event.priority, 0), event.available_at, event.id);
    else
        insert into tenure_backlog (key_hash, turn, id, lane, available_at)
        values (tenure_key_hash(event.ordering_key), event.id, event.id,
                queue_number * 16 + 7 - coalesce(event.priority, 0), event.available_at);
        insert into tenure_arrivals (key_hash, ordering_key)
        values (tenure_key_hash(event.ordering_key), event.ordering_key);
    end if;
    event.status := 'PENDING';
    return event;
end $$;

create function tenure_outbox_insert() returns trigger
language plpgsql set search_path from current as $$
begin
    new.id := null;
    return tenure_insert_event(new);
end $$;
create trigger tenure_outbox_insert instead of insert on tenure_outbox
for each row execute function tenure_outbox_insert();

-- Enqueues from any language, with payload and options as json, jsonb or text. A literal without a type is
-- text. Options: queue, priority, delay (an interval), dedupe, headers, event_id,
-- strict. Returns the id of the new event, or of the existing event with the same dedupe key.
create function tenure_enqueue(topic text, payload json, key text default null, options json default '{}')
returns bigint
language plpgsql set search_path from current as $$
declare
    event  tenure_outbox;
    winner bigint;
    stray  text;
begin
    select k into stray from json_object_keys(coalesce(options, '{}')) as k
    where k not in ('queue', 'priority', 'delay', 'dedupe', 'headers', 'event_id', 'strict') limit 1;
    if stray is not null then
        raise exception 'there is no option %', quote_literal(stray)
            using errcode = 'invalid_parameter_value',
                  hint = 'options are queue, priority, delay, dedupe, headers, event_id, strict';
    end if;
    if (options ->> 'delay')::interval not between interval '0' and interval '3660 days' then
        raise exception 'delay is %; expected zero to ten years', options ->> 'delay'
            using errcode = 'check_violation';
    end if;
    if octet_length(options ->> 'dedupe') not between 1 and 255 then
        raise exception 'dedupe key is % bytes long; expected 1 to 255',
            octet_length(options ->> 'dedupe')
            using errcode = 'check_violation';
    end if;
    if (options ->> 'strict')::boolean and key is not null then
        -- Lock before drawing the id: a producer that waits here draws a higher id.
        insert into tenure_strict_keys as s (key_hash) values (tenure_key_hash(key))
        on conflict on constraint tenure_strict_keys_pkey do update set key_hash = excluded.key_hash;
    end if;
    event.id := nextval('tenure_event_id');
    event.topic := topic;
    event.payload := payload;
    event.ordering_key := key;
    event.queue := options ->> 'queue';
    event.priority := options ->> 'priority';
    event.available_at := now() + (options ->> 'delay')::interval;
    event.headers := nullif((options -> 'headers')::text, 'null');
    event.event_id := options ->> 'event_id';
    if options ->> 'dedupe' is not null then
        insert into tenure_dedupe as d (dedupe_key, id) values (options ->> 'dedupe', event.id)
        on conflict on constraint tenure_dedupe_pkey do update set dedupe_key = excluded.dedupe_key
        returning d.id into winner;
        if winner <> event.id then
            return winner;
        end if;
    end if;
    event := tenure_insert_event(event);
    return event.id;
end $$;

create function tenure_enqueue(topic text, payload jsonb, key text default null, options jsonb default '{}')
returns bigint
language plpgsql set search_path from current as $$
begin
    return tenure_enqueue(topic, payload::json, key, options::json);
end $$;

create function tenure_enqueue(topic text, payload text, key text default null, options text default '{}')
returns bigint
language plpgsql set search_path from current as $$
begin
    return tenure_enqueue(topic, payload::json, key, options::json);
end $$;
