-- set_aside: moves due events into the lanes of their topics.
-- Parameters: :strays, a JSON array of [id, lane, available_at].
-- Returns: nothing.
-- Keeps: laws 1, 7: the claim has removed the events from ready (claim.sql, taken_some).
-- Relies on: the primary keys.

-- statement: lanes
insert into tenure_setbacks (id, lane, available_at)
select value ->> 0, value ->> 1, value ->> 2
from json_each(:strays)
where true
on conflict (id) do update set
    lane = excluded.lane,
    available_at = excluded.available_at;

-- statement: ready
insert into tenure_ready (lane, available_at, id)
select value ->> 1, value ->> 2, value ->> 0
from json_each(:strays);
