-- count: how many rows stand where, in one snapshot.
-- Parameters: :now.
-- Returns: due, delayed, oldest_due (the moment from which the first due row has waited), claimed,
--   lapsed, done, dead.
-- Keeps: nothing; it only reads.
-- Relies on: no index: every row is looked at once.
-- statement: count
select count(*) filter (where t.{status} = {pending}
                          and (t.{available_at} is null or t.{available_at} <= :now)),
       count(*) filter (where t.{status} = {pending} and t.{available_at} > :now),
       min(ifnull(t.{available_at}, t.{created_at})) filter (
           where t.{status} = {pending}
             and (t.{available_at} is null or t.{available_at} <= :now)),
       count(*) filter (where t.{status} = {claimed}),
       count(*) filter (where t.{status} = {claimed} and t.{until} <= :now),
       count(*) filter (where t.{status} = {done}),
       count(*) filter (where t.{status} = {dead})
from {table} t
