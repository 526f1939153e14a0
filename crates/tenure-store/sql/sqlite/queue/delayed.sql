-- delayed: items that wait for another attempt, in the order of lane, time and id.
-- Parameters: :lanes, as a JSON array, ascending; :now; :topic (null: all); :limit; :lane, :at and :id, to
--   continue after.
-- Returns: lane, available_at and id of each item that was examined, and whether it matches.
-- Keeps: nothing; it only reads.
-- Relies on: the primary keys. The limit ends the loops over lanes and rows early.

-- statement: delayed
select
    examined.lane,
    examined.available_at,
    examined.id,
    coalesce(setback.attempts > 0, 0) and (:topic is null or event.topic = :topic) as is_wanted
from (
    select ready.lane, ready.available_at, ready.id
    from json_each(:lanes) as named
    cross join tenure_ready as ready
        on ready.lane = named.value
        and (ready.available_at, ready.id) > (
            iif(named.value = :lane, max(:at, :now), :now),
            iif(named.value = :lane and :at > :now, :id, 9223372036854775807)
        )
    limit :limit
) as examined
cross join tenure_events as event
    on event.id = examined.id
left join tenure_setbacks as setback
    on setback.id = examined.id;
