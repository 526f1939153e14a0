-- settle: ends the lease on a named row with its outcome; run for each row.
-- Parameters: :now, :token, :holder, :id, :word, the outcome, :delay in microseconds, :error, :strict
--   whether a lapsed lease is refused.
-- Returns: settle: nothing (a row that stays unchanged was refused); late: whether the term was
--   over; held: the ids of the lease.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate; counters are incremented, not set.
-- Relies on: the key (the `+` rules out the index on tokens, with which each update would scan all rows of
--   the lease); for held and late the partial index on the tokens of claimed rows.
-- statement: held
select t.{key}
from {table} t
where t.{token} = :token and t.{holder} = :holder and {is_claimed}
order by t.{key}
-- statement: late
select ifnull(t.{until} <= :now, false)
from {table} t
where t.{token} = :token and t.{holder} = :holder and {is_claimed}
limit 1
-- statement: settle
update {table} as t
set {attempts} = t.{attempts} + case when :word = 'done' then 0 else 1 end,
    {status} = case :word when 'done' then {done} when 'dead' then {dead} else {pending} end,
    {failures} = t.{failures} + case when :word in ('retry', 'dead') then 1 else 0 end,
    {last_error} = case when :word in ('retry', 'dead') then :error else t.{last_error} end,
    {available_at} = case when :word = 'retry' or :word = 'release' and :delay > 0
                          then :now + :delay else t.{available_at} end,
    {done_at} = case when :word = 'done' then :now end,
    {dead_at} = case when :word = 'dead' then :now end,
    {settled_token} = :token || ' ' || :word,
    {holder} = null,
    {token} = null,
    {until} = null,
    {claimed_at} = null
where t.{key} = :id
  and +t.{token} = :token
  and t.{holder} = :holder
  and {is_claimed}
  and (not :strict or t.{until} > :now)
