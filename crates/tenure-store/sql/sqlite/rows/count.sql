-- count: counts the rows by state, in one snapshot.
-- Parameters: :now.
-- Returns: due, delayed, oldest_due (the time at which the first due row became due), claimed, lapsed,
--   done, dead.
-- Keeps: nothing; it only reads.
-- Relies on: no index: every row is scanned once.
-- statement: count
select count(*) filter (where {is_pending}
                          and (t.{available_at} is null or t.{available_at} <= :now)),
       count(*) filter (where {is_pending} and t.{available_at} > :now),
       min(ifnull(t.{available_at}, t.{created_at})) filter (
           where {is_pending}
             and (t.{available_at} is null or t.{available_at} <= :now)),
       count(*) filter (where {is_claimed}),
       count(*) filter (where {is_claimed} and t.{until} <= :now),
       count(*) filter (where {is_done}),
       count(*) filter (where {is_dead})
from {table} t
