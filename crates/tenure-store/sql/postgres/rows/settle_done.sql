-- settle_done: ends the lease on named rows as done, the most common settle: settle.sql without a lookup
-- for each row.
-- Parameters: $1 now, $2 token, $3 holder, $4 ids, $5 whether a lapsed lease is refused.
-- Returns: one row: ids of the rows whose lease was ended; late, whether the term was over. A missing id
--   was refused.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate.
-- Relies on: the partial index on the tokens of claimed rows; the keys are hashed, which `is true` ensures:
--   no plan searches the index for each key, or compares every row with every key.
with term as materialized (
    select t.{until} <= coalesce($1::timestamptz, statement_timestamp()) as is_over
    from {table} t
    where t.{token} = $2 and t.{holder} = $3 and {is_claimed}
    limit 1
), ended as (
    update {table} t
    set {done_at} = coalesce($1::timestamptz, statement_timestamp()),
        {dead_at} = null,
        {status} = {done},
        {settled_token} = $2 || ' done',
        {holder} = null,
        {token} = null,
        {until} = null,
        {claimed_at} = null
    where t.{token} = $2
      and t.{holder} = $3
      and {is_claimed}
      and (t.{key} in (select unnest($4::bigint[]))) is true
      and (not $5::boolean or t.{until} > coalesce($1::timestamptz, statement_timestamp()))
    returning t.{key} as id
)
select array_agg(id) as ids, coalesce((select is_over from term), false) as late from ended
