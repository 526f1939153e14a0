-- reap: ends the leases on lapsed rows, which become pending again after a delay, or dead beyond the crash
-- limit.
-- Parameters: :now, :limit, :delays in microseconds by number of lapses as a JSON array, :budget,
--   the crash limit, :reached whether a term that ends exactly now is over, :ids as a JSON array.
-- Returns: lapsed: id, and the former holder, fence and `until`, the longest lapsed first; reap: id, its
--   state now, available_at.
-- Keeps: laws 5, 6. Both statements check that the term is over, in one transaction.
-- Relies on: the partial index of claimed rows, which are few and are all scanned; the key.
-- statement: lapsed
select t.{key}, t.{holder}, t.{fence}, t.{until}
from {table} t
where {is_claimed}
  and (t.{until} < :now or :reached and t.{until} = :now)
order by t.{until}, t.{key}
limit :limit
-- statement: reap
update {table} as t
set {until} = null,
    {status} = case when t.{crashes} + 1 > :budget then {dead} else {pending} end,
    {token} = null,
    {holder} = null,
    {claimed_at} = null,
    {attempts} = t.{attempts} + 1,
    {crashes} = t.{crashes} + 1,
    {last_error} = case when t.{crashes} + 1 > :budget
                        then 'crash_loop: lease lapsed' else 'lease lapsed' end,
    {available_at} = case when t.{crashes} + 1 > :budget then t.{available_at}
        else :now + (:delays ->> min(t.{crashes}, json_array_length(:delays) - 1)) end,
    {dead_at} = case when t.{crashes} + 1 > :budget then :now end
where t.{key} in (select value from json_each(:ids))
  and {is_claimed}
  and (t.{until} < :now or :reached and t.{until} = :now)
returning {key}, {bare_state}, {available_at}
