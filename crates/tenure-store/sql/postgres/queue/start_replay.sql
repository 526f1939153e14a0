-- start_replay: puts a replay on record; those that ended long ago go.
-- Parameters: $1 now, $2 the filter as json, $3 items per minute (null: no limit), $4 how many are expected
--   (null: nobody counted), $5 behind this id and $6 up to this one is looked at all, $7 how long an ended
--   one is kept, in microseconds.
-- Returns: the operation, as replays.sql.
-- Keeps: it looks at no item that is newer than the newest of now.
-- Relies on: tenure_events_pkey, backwards. Operations are few and are scanned.
with gone as (
    delete from tenure_replays
    where ended_at < coalesce($1::timestamptz, now()) - $7::bigint * interval '1 microsecond'
)
insert into tenure_replays (filter, rate, expected, reached, last_id, created_at, next_at)
select $2::text::json, $3::int, $4::bigint, $5::bigint,
       coalesce((select e.id
                 from tenure_events e
                 where e.id > $5::bigint and e.id <= $6::bigint
                 order by e.id desc
                 limit 1), $5::bigint),
       coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now())
returning id, filter::text, rate, expected, reached, last_id, replayed, refused, state,
       created_at, next_at, ended_at
