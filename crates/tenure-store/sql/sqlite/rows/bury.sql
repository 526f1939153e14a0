-- bury: settles a row as dead, even if a worker holds it. A pending row is claimed under the operator's
-- token, with a new fence, and settled in the same transaction; a claimed row is taken from its holder.
-- Parameters: :now, :token the operator's, :id, :why, :fence.
-- Returns: pending: whether the row is pending; fence: the number of the operator's claim; bury: id, if it
--   was buried.
-- Keeps: laws 5, 6: the only way from pending to dead is through a claim.
-- Relies on: the key.
-- statement: pending
select exists (select 1 from {table} t where t.{key} = :id and {is_pending})
-- statement: fence
update tenure_fence set fence = fence + 1 returning fence
-- statement: bury
update {table} as t
set {dead_at} = :now,
    {status} = {dead},
    {attempts} = t.{attempts} + 1,
    {last_error} = :why,
    {fence} = ifnull(:fence, t.{fence}),
    {settled_token} = ifnull(t.{token}, :token) || ' buried',
    {holder} = null,
    {token} = null,
    {until} = null,
    {claimed_at} = null
where t.{key} = :id
  and ({is_pending} or {is_claimed})
returning {key}
