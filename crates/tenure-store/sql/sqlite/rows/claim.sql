-- claim: takes one lease on pending rows, up to a limit, and returns them in order.
-- Parameters: :now, :token, :holder, :until, :limit, :lone whether rows that must be worked alone are taken
--   in order like all others, :fence, :ids as a JSON array; if rows have a kind, :kinds as a JSON array or
--   null for all.
-- Returns: claimable and claimable_alone: the rows before the claim; used: whether the token has a lease
--   already; fence: the number of this claim; claimed: the rows after the claim.
-- Keeps: laws 1, 2, 6. The rows are chosen once, so the limit holds; the fence is drawn only if there is a
--   row to claim. All of it is one transaction, and there is one writer: rows are not read again, unless
--   triggers or generated columns may change them. `or fail` avoids the statement journal, a copy of every
--   changed page: an error undoes the whole claim anyway. It is left out if the table has triggers, because
--   it would override their conflict handling.
-- Relies on: the partial indexes on the order of pending rows and on the tokens of claimed ones; the key.
-- statement: used
select exists (
    select 1 from {table} t where t.{token} = :token and {is_claimed}
)
-- statement: claimable
select t.*
from {table} t
where {is_pending}
  and (t.{available_at} is null or t.{available_at} <= :now)
  and (t.{crashes} < 2 or :lone)
  and (:kinds is null or t.{kind} in (select value from json_each(:kinds)))
order by {order}
limit :limit
-- statement: claimable_alone
select t.*
from {table} t
where {is_pending}
  and (t.{available_at} is null or t.{available_at} <= :now)
  and t.{crashes} >= 2
  and (:kinds is null or t.{kind} in (select value from json_each(:kinds)))
order by {order}
limit :limit
-- statement: fence
update tenure_fence set fence = fence + 1 returning fence
-- statement: claim
update or fail {table} as t
set {until} = :until,
    {status} = {claimed},
    {token} = :token,
    {holder} = :holder,
    {claimed_at} = :now,
    {fence} = :fence
where t.{key} in (select value from json_each(:ids))
  and {is_pending}
-- statement: claimed
select t.*
from {table} t
where t.{token} = :token and {is_claimed}
