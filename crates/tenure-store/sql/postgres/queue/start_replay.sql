-- start_replay: records a new bulk replay, and deletes those that ended long ago.
-- Parameters: $1 now, $2 the filter as json, $3 items per minute (null: no limit), $4 the expected number
--   of items (null: not counted), $5 and $6 the range of ids to examine: after the first, up to the second,
--   $7 retention of an ended replay in microseconds.
-- Returns: the operation, as replays.sql.
-- Keeps: it examines no item newer than the newest one at its start.
-- Relies on: tenure_events_pkey, backwards. Replays are few and are scanned.
with gone as (
    delete from tenure_replays
    where ended_at < coalesce($1::timestamptz, statement_timestamp()) - $7::bigint * interval '1 microsecond'
)
insert into tenure_replays (filter, rate_per_minute, expected_items, reached_id, last_id, created_at, next_step_at)
select $2::text::json, $3::int, $4::bigint, $5::bigint,
       coalesce((select e.id
                 from tenure_events e
                 where e.id > $5::bigint and e.id <= $6::bigint
                 order by e.id desc
                 limit 1), $5::bigint),
       coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp())
returning id, filter::text, rate_per_minute, expected_items, reached_id, last_id, replayed, refused, state,
       created_at, next_step_at, ended_at
