-- renew: moves `until` forward for the rows of leases that stand and are live.
-- Parameters: $1 now, $2 tokens, $3 the holder of each token, $4 term in microseconds.
-- Returns: nth, the place of the token in the list; id, until and fence of each row that was renewed.
--   id is null for a token that has rows whose term is over.
-- Keeps: law 3: key, token, holder and state in one predicate; `until` never moves back and nothing
--   else changes.
-- Relies on: the partial index on the tokens of claimed rows, or the key: by either, the rows of a
--   lease are locked in the order of their keys.
with held as materialized (
    select t.{key} as id
    from {table} t
    where t.{token} = any ($2::text[])
      and {is_claimed}
), renewed as (
    update {table} t
    set {until} = greatest(
        t.{until}, coalesce($1::timestamptz, now()) + $4::bigint * interval '1 microsecond')
    where t.{key} = any (array(select id from held))
      and t.{token} = any ($2::text[])
      and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]
      and {is_claimed}
      and t.{until} > coalesce($1::timestamptz, now())
    returning t.{token} as token, t.{key} as id, t.{until} as until, t.{fence} as fence
), lapsed as (
    select distinct t.{token} as token
    from {table} t
    where t.{token} = any ($2::text[])
      and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]
      and {is_claimed}
      and t.{until} <= coalesce($1::timestamptz, now())
)
select array_position($2::text[], token) as nth, id, until, fence from renewed
union all
select array_position($2::text[], token), null, null, null from lapsed
order by nth, id
