-- claim: gives up to a limit of pending rows one lease and returns them, in order.
-- Parameters: $1 now, $2 token, $3 holder, $4 term in microseconds, $5 limit, $6 whether it is for a
--   row that must be worked alone, $7 whether it takes such rows in their turn like all others; where
--   rows have a kind, $8 the kinds or null for all.
-- Returns: per row: id, content (the columns that are not the lease's; each column more costs as much as
--   a counter that is raised), available_at, the counters, fence, claimed_at, until. If nothing was
--   claimed, one row of nulls; used says whether that is because the token has a lease already.
-- Keeps: laws 1, 2, 6. The rows are chosen once, so the limit holds whatever the plan; the fence is
--   drawn once, and only if there is something to claim.
-- Relies on: the partial indexes on the order of pending rows. A join would let a plan for an unknown
--   limit read the whole table, hence the array. The rows are locked, so they are found at their place,
--   and the update does not ask for the status again; one that was changed since the statement began is
--   not found there, and is left for the next claim.
with used as materialized (
    select exists (
        select 1 from {table} t where t.{token} = $2 and {is_claimed}
    ) as used
), claimable as materialized (
    select t.ctid as place
    from {table} t
    where {is_pending}
      and (t.{available_at} is null or t.{available_at} <= coalesce($1::timestamptz, now()))
      and (t.{crashes} < 2 or $7::boolean)
      and ($8::text[] is null or t.{kind} = any ($8::text[]))
      and not $6::boolean
    order by {order}
    limit $5::bigint
    for update skip locked
), claimable_alone as materialized (
    select t.ctid as place
    from {table} t
    where {is_pending}
      and (t.{available_at} is null or t.{available_at} <= coalesce($1::timestamptz, now()))
      and t.{crashes} >= 2
      and $6::boolean
      and ($8::text[] is null or t.{kind} = any ($8::text[]))
    order by {order}
    limit $5::bigint
    for update skip locked
), drawn as materialized (
    select nextval('{fence_sequence}') as fence
    where exists (select 1 from claimable) or exists (select 1 from claimable_alone)
), claimed as (
    update {table} t
    set {until} = coalesce($1::timestamptz, now()) + $4::bigint * interval '1 microsecond',
        {status} = {claimed},
        {token} = $2,
        {holder} = $3,
        {claimed_at} = coalesce($1::timestamptz, now()),
        {fence} = (select fence from drawn)
    where t.ctid = any (array(
            select place from claimable union all select place from claimable_alone
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
