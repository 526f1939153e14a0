-- settle: ends the hold on named rows of a lease, each with its outcome, and on the rest if asked to.
-- Parameters: :now, :token, :holder, :said a JSON array of [id, word, delay in microseconds, error],
--   :strict whether a lapsed lease is refused.
-- Returns: settle: id of each row that was ended, what is missing was refused; late: whether the term
--   was over; held: the ids of the lease.
-- Keeps: laws 3, 4, 6: key, token, holder and state in one predicate; counters are raised, not set.
-- Relies on: the key (the `+` keeps the other index away: by it every row would be compared with every
--   name); for held and late the partial index on the tokens of claimed rows.
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
set {attempts} = t.{attempts} + case when s.word = 'done' then 0 else 1 end,
    {status} = case s.word when 'done' then {done} when 'dead' then {dead} else {pending} end,
    {failures} = t.{failures} + case when s.word in ('retry', 'dead') then 1 else 0 end,
    {last_error} = case when s.word in ('retry', 'dead') then s.error else t.{last_error} end,
    {available_at} = case when s.word = 'retry' or s.word = 'release' and s.delay > 0
                          then :now + s.delay else t.{available_at} end,
    {done_at} = case when s.word = 'done' then :now end,
    {dead_at} = case when s.word = 'dead' then :now end,
    {settled_token} = :token || ' ' || s.word,
    {holder} = null,
    {token} = null,
    {until} = null,
    {claimed_at} = null
from (
    select value ->> 0 as id, value ->> 1 as word, value ->> 2 as delay, value ->> 3 as error
    from json_each(:said)
) as s
where t.{key} = s.id
  and +t.{token} = :token
  and t.{holder} = :holder
  and {is_claimed}
  and (not :strict or t.{until} > :now)
returning {key}
