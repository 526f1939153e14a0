-- settle_done: ends the hold on named rows of a lease as done, which is what most settles say: settle.sql
-- for all of them at once.
-- Parameters: :now, :token, :holder, :ids as a JSON array, :strict whether a lapsed lease is refused.
-- Returns: nothing; if fewer rows were changed than named, one was refused, and the caller undoes it all.
--   So it does after an error: `or fail` spares a copy of every page. It is left out where there are
--   triggers, whose own words on conflicts it would stand over.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate.
-- Relies on: the key (the `+` keeps the other index away).
-- statement: settle_done
update or fail {table} as t
set {done_at} = :now,
    {dead_at} = null,
    {status} = {done},
    {settled_token} = :token || ' done',
    {holder} = null,
    {token} = null,
    {until} = null,
    {claimed_at} = null
where t.{key} in (select value from json_each(:ids))
  and +t.{token} = :token
  and t.{holder} = :holder
  and {is_claimed}
  and (not :strict or t.{until} > :now)
