-- reap: ends the leases on lapsed rows, which become pending again after a delay, or dead beyond the crash
-- limit.
-- Parameters: $1 now, $2 limit, $3 delays in microseconds by number of lapses, $4 the crash limit, $5
--   whether a term that ends exactly now is over, $6 a single row to reap (null: all).
-- Returns: per row: id, its former holder, fence and `until`, its state now, available_at; the longest
--   lapsed first.
-- Keeps: laws 5, 6. One conditional statement: a row that was renewed or settled meanwhile fails the
--   predicate under its lock, and a row that another transaction has locked is left for the next reap.
-- Relies on: the partial index of claimed rows, which are few and are all scanned (an index on `until`
--   would cost every renewal more); the key.
with lapsed as materialized (
    select t.{key} as id, t.{until} as until, t.{holder} as holder
    from {table} t
    where {is_claimed}
      and (t.{until} < coalesce($1::timestamptz, statement_timestamp())
           or $5::boolean and t.{until} = coalesce($1::timestamptz, statement_timestamp()))
      and ($6::bigint is null or t.{key} = $6::bigint)
    order by t.{until}, t.{key}
    limit $2::bigint
    for update skip locked
), ended as (
    update {table} t
    set {until} = null,
        {status} = case when t.{crashes} + 1 > $4::integer then {dead} else {pending} end,
        {token} = null,
        {holder} = null,
        {claimed_at} = null,
        {attempts} = t.{attempts} + 1,
        {crashes} = t.{crashes} + 1,
        {last_error} = case when t.{crashes} + 1 > $4::integer
                            then 'crash_loop: lease lapsed' else 'lease lapsed' end,
        {available_at} = case when t.{crashes} + 1 > $4::integer then t.{available_at}
            else coalesce($1::timestamptz, statement_timestamp()) + interval '1 microsecond'
                 * ($3::bigint[])[least(t.{crashes} + 1, cardinality($3::bigint[]))] end,
        {dead_at} = case when t.{crashes} + 1 > $4::integer
                         then coalesce($1::timestamptz, statement_timestamp()) end
    where t.{key} = any (array(select id from lapsed))
    returning t.{key} as id, t.{fence} as fence, {state} as state,
              t.{available_at} as available_at
)
select id, max(holder) as holder, max(fence) as fence, max(until) as until, max(state) as state,
       max(available_at) as available_at, coalesce($1::timestamptz, statement_timestamp()) as now
from (
    select id, holder, null::bigint as fence, until, null::text as state,
           null::timestamptz as available_at
    from lapsed
    union all
    select id, null, fence, null, state, available_at from ended
) as reaped
group by id
having count(fence) > 0
order by max(until), id
