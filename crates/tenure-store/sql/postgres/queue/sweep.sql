-- sweep: moves due events without a key, whose topics are separate, into the lanes of their topics.
-- Parameters: $1 now, $2 numbers of queues, $3 maximum rows to read.
-- Returns: nothing.
-- Keeps: laws 1, 6, 7: it moves only rows that it has locked, and each stays in ready. A head stays where it
--   is: pause_key.sql, which has the lock of its key, would not find it in its new lane. It waits for no
--   lock. Rows are deleted by ctid: they are locked and never updated.
-- Relies on: tenure_ready_pkey, tenure_events_pkey, tenure_setbacks_pkey, tenure_queues_pkey.
with due as materialized (
    select r.row_id, q.name, r.lane, r.available_at, r.id
    from (
        select q.name, q.number * 16 + step as lane
        from unnest($2::int[]) as n(number)
        join tenure_queues q on q.number = n.number
        cross join generate_series(0, 8) as step
    ) as q
    cross join lateral (
        select ctid as row_id, lane, available_at, id, key_hash
        from tenure_ready
        where lane = q.lane
          and available_at <= coalesce($1::timestamptz, statement_timestamp())
        order by available_at, id
        limit $3
        for update skip locked
    ) as r
    where r.key_hash is null
    limit $3
), stray as materialized (
    select d.row_id, t.number * 16 + d.lane % 16 as lane, d.available_at, d.id
    from due d
    cross join lateral (select e.topic from tenure_events e where e.id = d.id offset 0) e
    join tenure_queues t on t.name = d.name and t.topic = e.topic and t.topic <> ''
), taken as (
    delete from tenure_ready
    where ctid = any (array(select row_id from stray))
), noted as (
    insert into tenure_setbacks as s (id, lane)
    select id, lane
    from stray
    on conflict (id) do update
    set lane = excluded.lane
)
insert into tenure_ready (lane, available_at, id)
select lane, available_at, id
from stray
