-- count: counts the rows by state, in one snapshot.
-- Parameters: $1 now.
-- Returns: due, delayed, oldest_due (the time at which the first due row became due), claimed, lapsed,
--   done, dead; and now.
-- Keeps: nothing; it only reads. For an empty table the left join yields one row of nulls, which is not
--   counted.
-- Relies on: no index: every row is scanned once.
select count(t.{key}) filter (where {is_pending}
                          and (t.{available_at} is null or t.{available_at} <= m.now)) as due,
       count(t.{key}) filter (where {is_pending}
                          and t.{available_at} > m.now) as delayed,
       min(coalesce(t.{available_at}, t.{created_at})) filter (
           where {is_pending}
             and (t.{available_at} is null or t.{available_at} <= m.now)) as oldest_due,
       count(t.{key}) filter (where {is_claimed}) as claimed,
       count(t.{key}) filter (where {is_claimed} and t.{until} <= m.now) as lapsed,
       count(t.{key}) filter (where {is_done}) as done,
       count(t.{key}) filter (where {is_dead}) as dead,
       max(m.now) as now
from (select coalesce($1::timestamptz, statement_timestamp()) as now) as m
left join {table} t on true
