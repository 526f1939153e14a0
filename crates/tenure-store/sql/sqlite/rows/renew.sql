-- renew: moves `until` forward for the rows of a lease that exists and is live; run for each token.
-- Parameters: :now, :token, :holder, :until the new end.
-- Returns: renew: id, until and fence of each row that was renewed; lapsed: whether the token has rows
--   whose term is over.
-- Keeps: law 3: key, token, holder and state in one predicate; `until` never moves back and nothing else
--   changes.
-- Relies on: the partial index on the tokens of claimed rows; the key (the `+` keeps the update from using
--   the index on tokens).
-- statement: renew
update {table} as t
set {until} = max(t.{until}, :until)
where t.{key} in (select t.{key} from {table} t where t.{token} = :token and {is_claimed})
  and +t.{token} = :token
  and t.{holder} = :holder
  and {is_claimed}
  and t.{until} > :now
returning {key}, {until}, {fence}
-- statement: lapsed
select exists (
    select 1
    from {table} t
    where t.{token} = :token
      and t.{holder} = :holder
      and {is_claimed}
      and t.{until} <= :now
)
