-- start_replay: puts a replay on record; those that ended long ago go.
-- Parameters: :now; :filter as JSON; :rate, items per minute (null: no limit); :expected (null: nobody
--   counted); :behind this id and up to :last is looked at all; :kept_since, before which one that has
--   ended goes.
-- Returns: started: the operation, as replays.sql.
-- Keeps: it looks at no item that is newer than the newest of now.
-- Relies on: the primary key of tenure_events, read backwards. Operations are few and are scanned.

-- statement: gone
delete from tenure_replays
where ended_at < :kept_since;

-- statement: started
insert into tenure_replays (filter, rate, expected, reached, last_id, created_at, next_at)
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
    rate,
    expected,
    reached,
    last_id,
    replayed,
    refused,
    state,
    created_at,
    next_at,
    ended_at;
