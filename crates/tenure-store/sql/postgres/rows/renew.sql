-- renew: moves `until` forward for the rows of leases that exist and are live.
-- Parameters: $1 now, $2 tokens, $3 the holder of each token, $4 term in microseconds.
-- Returns: nth, the position of the token in the list; id, until and fence of each row that was renewed.
--   until is null for a row whose term is over (is_busy false), and for one that is live and was not
--   renewed, because another transaction has locked it (is_busy true).
-- Keeps: law 3: key, token, holder and state in one predicate; `until` never moves back and nothing else
--   changes. It waits for no lock: a row that another transaction has locked must not delay the others.
-- Relies on: the partial index on the tokens of claimed rows, or the key.
with held as materialized (
    select t.{key} as id
    from {table} t
    where t.{token} = any ($2::text[])
      and {is_claimed}
    for no key update of t skip locked
), renewed as (
    update {table} t
    set {until} = greatest(
        t.{until}, coalesce($1::timestamptz, statement_timestamp()) + $4::bigint * interval '1 microsecond')
    where t.{key} = any (array(select id from held))
      and t.{token} = any ($2::text[])
      and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]
      and {is_claimed}
      and t.{until} > coalesce($1::timestamptz, statement_timestamp())
    returning t.{token} as token, t.{key} as id, t.{until} as until, t.{fence} as fence
), others as (
    select t.{token} as token, t.{key} as id, t.{until} > coalesce($1::timestamptz, statement_timestamp()) as is_busy
    from {table} t
    where t.{token} = any ($2::text[])
      and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]
      and {is_claimed}
      and t.{until} is not null
      and (t.{until} <= coalesce($1::timestamptz, statement_timestamp())
           or t.{key} not in (select id from renewed))
)
select array_position($2::text[], token) as nth, id, until, fence, false as is_busy from renewed
union all
select array_position($2::text[], token), id, null, null, is_busy from others
order by nth, until, id
