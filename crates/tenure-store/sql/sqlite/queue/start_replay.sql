-- start_replay: records a new bulk replay, and deletes those that ended long ago.
-- Parameters: :now; :filter as JSON; :rate, items per minute (null: no limit); :expected (null: not
--   counted); :behind and :last, the range of ids to examine: after the first, up to the second;
--   :kept_since, ended replays before this time are deleted.
-- Returns: started: the operation, as replays.sql.
-- Keeps: it examines no item newer than the newest one at its start.
-- Relies on: the primary key of tenure_events, read backwards. Replays are few and are scanned.

-- statement: gone
delete from tenure_replays
where ended_at < :kept_since;

-- statement: started
insert into tenure_replays (filter, rate_per_minute, expected_items, reached_id, last_id, created_at, next_step_at)
select
    :filter,
    :rate,
    :expected,
    :behind,
    coalesce(
        (
            select event.id
            from tenure_events as event
            where event.id > :behind
                and event.id <= :last
            order by event.id desc
            limit 1
        ),
        :behind
    ),
    :now,
    :now
returning
    id,
    filter,
    rate_per_minute,
    expected_items,
    reached_id,
    last_id,
    replayed,
    refused,
    state,
    created_at,
    next_step_at,
    ended_at;
