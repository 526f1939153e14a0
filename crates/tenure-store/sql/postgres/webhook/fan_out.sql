-- fan_out: writes the deliveries of events that this transaction has settled as done.
-- Parameters: $1 now, $2 the token of the settle, $3 the version of the rules that selected the endpoints,
--   one entry per delivery of: $4 event, ascending, $5 number and $6 name of the endpoint.
-- Returns: one row: whether the rules are unchanged (otherwise nothing was written: select the endpoints
--   again), the number of deliveries written.
-- Keeps: one delivery per event and endpoint: an existing one is not changed. A repeated settle writes
--   nothing: its journal row belongs to another transaction. Ids are drawn in the order of the events, so
--   that those of a key rise; a delivery with a key goes into the backlog, as in enqueue.sql.
-- Relies on: tenure_settled_token, tenure_events_pkey, tenure_events_source, tenure_endpoints_version_pkey.
with rules as materialized (
    select v.rules_version = $3::bigint as is_current
    from tenure_endpoints_version v
    where v.singleton = 1
), done as materialized (
    select i.id
    from tenure_settled j
    cross join unnest(j.ids) as i(id)
    where j.token = $2 and j.outcome = 'done' and j.xmin = pg_current_xact_id()::xid
      and (select is_current from rules)
), owed as materialized (
    select o.id, o.number, o.name
    from unnest($4::bigint[], $5::int[], $6::text[]) with ordinality as o(id, number, name, nth)
    where (o.id in (select id from done)) is true
    order by o.nth
), fresh as (
    insert into tenure_events
        (id, event_id, topic, ordering_key, lane, source, created_at, available_at)
    select nextval('tenure_delivery_id'), e.event_id, e.topic, o.name || '/' || e.ordering_key,
           o.number * 16 + least(e.lane & 15, 7), e.id, coalesce($1::timestamptz, statement_timestamp()),
           coalesce($1::timestamptz, statement_timestamp())
    from owed o
    cross join lateral (
        select e.id, e.event_id, e.topic, e.ordering_key, e.lane
        from tenure_events e
        where e.id = o.id and e.source is null
        offset 0
    ) e
    on conflict (source, (lane >> 4)) where source is not null do nothing
    returning id, ordering_key, lane, available_at
), ready as (
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id
    from fresh
    where ordering_key is null
), backlog as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(ordering_key), id, id, lane, available_at
    from fresh
    where ordering_key is not null
), arrival as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select tenure_key_hash(ordering_key), ordering_key
    from fresh
    where ordering_key is not null
    group by ordering_key
)
select (select is_current from rules) as is_current, (select count(*) from fresh) as written
