-- claim: takes one lease on pending rows, up to a limit, and returns them in order.
-- Parameters: $1 now, $2 token, $3 holder, $4 term in microseconds, $5 limit, $6 whether to claim a row
--   that must be worked alone, $7 whether to take such rows in order like all others; if rows have a kind,
--   $8 the kinds or null for all.
-- Returns: per row: id, content (without the columns of the lease, to save time), available_at, the
--   counters, fence, claimed_at, until. If nothing was claimed, one row of nulls; used is true if
--   the token has a lease already.
-- Keeps: laws 1, 2, 6. The rows are chosen once, so the limit holds with any plan; the fence is drawn once,
--   and only if there is a row to claim.
-- Relies on: the partial indexes on the order of pending rows. With a join, a plan for an unknown limit
--   could read the whole table, hence the array. The rows are locked, so the update finds them by their
--   position and does not check the status again; a row that changed since the statement began is not found
--   there, and is left for the next claim.
with used as materialized (
    select exists (
        select 1 from {table} t where t.{token} = $2 and {is_claimed}
    ) as used
), claimable as materialized (
    select t.ctid as row_id
    from {table} t
    where {is_pending}
      and (t.{available_at} is null or t.{available_at} <= coalesce($1::timestamptz, statement_timestamp()))
      and (t.{crashes} < 2 or $7::boolean)
      and ($8::text[] is null or t.{kind} = any ($8::text[]))
      and not $6::boolean
    order by {order}
    limit $5::bigint
    for update skip locked
), claimable_alone as materialized (
    select t.ctid as row_id
    from {table} t
    where {is_pending}
      and (t.{available_at} is null or t.{available_at} <= coalesce($1::timestamptz, statement_timestamp()))
      and t.{crashes} >= 2
      and $6::boolean
      and ($8::text[] is null or t.{kind} = any ($8::text[]))
    order by {order}
    limit $5::bigint
    for update skip locked
), drawn as materialized (
    select {next_fence}() as fence
    where exists (select 1 from claimable) or exists (select 1 from claimable_alone)
), claimed as (
    update {table} t
    set {until} = coalesce($1::timestamptz, statement_timestamp()) + $4::bigint * interval '1 microsecond',
        {status} = {claimed},
        {token} = $2,
        {holder} = $3,
        {claimed_at} = coalesce($1::timestamptz, statement_timestamp()),
        {fence} = (select fence from drawn)
    where t.ctid = any (array(
            select row_id from claimable union all select row_id from claimable_alone
        ))
      and not (select used from used)
    returning t.*
)
select u.used and exists (select 1 from drawn) as used, t.{key} as id, {content} as content,
       coalesce(t.{available_at}, t.{created_at}) as available_at,
       t.{attempts} as attempts, t.{failures} as failures, t.{crashes} as crashes,
       t.{generation} as generation, t.{fence} as fence, t.{claimed_at} as claimed_at,
       t.{until} as until
from used u
left join claimed t on true
order by {order}
