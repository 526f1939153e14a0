-- settle_done: ends the lease on named rows as done, the most common settle: settle.sql for all rows at
-- once.
-- Parameters: :now, :token, :holder, :ids as a JSON array, :strict whether a lapsed lease is refused.
-- Returns: nothing; if fewer rows were changed than named, at least one was refused, and the caller undoes
--   everything, as it does after an error. So `or fail` is safe; it avoids the statement journal, a copy of
--   every changed page. It is left out if the table has triggers, because it would override their conflict
--   handling.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate.
-- Relies on: the key (the `+` rules out the index on tokens).
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
