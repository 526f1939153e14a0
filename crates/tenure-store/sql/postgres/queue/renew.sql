-- renew: moves `locked_until` forward for the leases that exist and are live.
-- Parameters: $1 now, $2 tokens, $3 term in microseconds.
-- Returns: per token: is_there (the lease was renewed, or it exists but has lapsed), and fence,
--   locked_until, ids if it was renewed. A lease that ended while this statement waited for its lock is
--   lost, like one that never existed.
-- Keeps: law 3; `locked_until` never moves back. It locks in the order of the tokens, so that it cannot
--   deadlock with a settle of the same worker.
-- Relies on: tenure_leases_pkey.
with live as materialized (
    select token
    from tenure_leases
    where token = any ($2::text[]) and locked_until > coalesce($1::timestamptz, statement_timestamp())
    order by token
    for update
), renewed as (
    update tenure_leases l
    set locked_until = greatest(
        l.locked_until, coalesce($1::timestamptz, statement_timestamp()) + $3::bigint * interval '1 us')
    from live
    where l.token = live.token
    returning l.token, l.fence, l.locked_until, l.ids
)
select token, bool_or(is_there) as is_there, max(fence) as fence, max(locked_until) as locked_until,
       max(ids) as ids
from (
    select token, true as is_there, fence, locked_until, ids from renewed
    union all
    select token, true, null, null, null
    from tenure_leases
    where token = any ($2::text[]) and locked_until <= coalesce($1::timestamptz, statement_timestamp())
    union all
    select token, false, null, null, null from unnest($2::text[]) as u(token)
) as asked
group by token
