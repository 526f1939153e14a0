-- bury: settles a row as dead, even if a worker holds it. A pending row is claimed under the operator's
-- token, with a new fence, and settled in the same step; a claimed row is taken from its holder.
-- Parameters: $1 now, $2 the operator's token, $3 id, $4 reason.
-- Returns: id, if it was buried.
-- Keeps: laws 5, 6: the only way from pending to dead is through a claim.
-- Relies on: the key.
update {table} t
set {dead_at} = coalesce($1::timestamptz, statement_timestamp()),
    {status} = {dead},
    {attempts} = t.{attempts} + 1,
    {last_error} = $4,
    {fence} = case when {is_pending} then {next_fence}() else t.{fence} end,
    {settled_token} = coalesce(t.{token}, $2) || ' buried',
    {holder} = null,
    {token} = null,
    {until} = null,
    {claimed_at} = null
where t.{key} = $3::bigint
  and ({is_pending} or {is_claimed})
returning t.{key} as id
