-- replay: makes settled rows pending again: a new generation, counters at zero, claimable now.
-- Parameters: $1 now, $2 ids.
-- Returns: id of each replayed row. A missing id was refused.
-- Keeps: laws 4, 6. The fence and the last settle stay, so old tokens stay invalid. The statement clears a
--   holder or end of term that was left on a settled row, which would make it held.
-- Relies on: the key, which also gives the order of the locks.
update {table} t
set {generation} = t.{generation} + 1,
    {status} = {pending},
    {attempts} = 0,
    {failures} = 0,
    {crashes} = 0,
    {last_error} = null,
    {available_at} = coalesce($1::timestamptz, statement_timestamp()),
    {done_at} = null,
    {dead_at} = null,
    {holder} = null,
    {until} = null
where t.{key} = any ($2::bigint[])
  and ({is_done} or {is_dead})
returning t.{key} as id
