-- settle: ends the lease on named rows, each with its outcome, and on the other rows of the lease if
-- requested.
-- Parameters: $1 now, $2 token, $3 holder, $4 ids, $5 the outcome for each, $6 delays in microseconds, $7
--   errors, $8 the outcome for the rows that are not named (null keeps them held), $9 whether a lapsed
--   lease is refused.
-- Returns: id of each row whose lease was ended; late, whether the term was over. A missing id was refused.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate; counters are incremented, not set.
-- Relies on: the partial index on the tokens of claimed rows. The outcomes are looked up by key in one
--   object: with a join, a plan for short lists compares every row with every id.
with said as materialized (
    select jsonb_object_agg(id::text, jsonb_build_array(word, delay, error)) as outcomes
    from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) as s(id, word, delay, error)
), term as materialized (
    select t.{until} <= coalesce($1::timestamptz, statement_timestamp()) as is_over
    from {table} t
    where t.{token} = $2 and t.{holder} = $3 and {is_claimed}
    limit 1
), ended as (
    update {table} t
    set ({attempts}, {failures}, {last_error}, {available_at}, {done_at}, {dead_at},
         {status},
         {settled_token}) = (
            select t.{attempts} + case when o.word = 'done' then 0 else 1 end,
                   t.{failures} + case when o.word in ('retry', 'dead') then 1 else 0 end,
                   case when o.word in ('retry', 'dead') then o.error else t.{last_error} end,
                   case when o.word = 'retry' or o.word = 'release' and o.delay > 0
                        then coalesce($1::timestamptz, statement_timestamp()) + o.delay * interval '1 microsecond'
                        else t.{available_at} end,
                   case when o.word = 'done' then coalesce($1::timestamptz, statement_timestamp()) end,
                   case when o.word = 'dead' then coalesce($1::timestamptz, statement_timestamp()) end,
                   case o.word when 'done' then {done} when 'dead' then {dead} else {pending} end,
                   $2 || ' ' || o.word
            from (
                select coalesce(said.outcomes -> t.{key}::text ->> 0, $8) as word,
                       coalesce((said.outcomes -> t.{key}::text ->> 1)::bigint, 0) as delay,
                       said.outcomes -> t.{key}::text ->> 2 as error
                from said
            ) as o
        ),
        {holder} = null,
        {token} = null,
        {until} = null,
        {claimed_at} = null
    where t.{token} = $2
      and t.{holder} = $3
      and {is_claimed}
      and ($8::text is not null or (select outcomes from said) ? t.{key}::text)
      and (not $9::boolean or t.{until} > coalesce($1::timestamptz, statement_timestamp()))
    returning t.{key} as id
)
select id, coalesce((select is_over from term), false) as late from ended
