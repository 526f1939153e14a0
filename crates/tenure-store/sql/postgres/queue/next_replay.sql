-- next_replay: locks the replay that has been due the longest, for one step.
-- Parameters: $1 now, $2 only this one (null: any).
-- Returns: one row: the operation as replays.sql returns it, all null if none is due; then the microseconds
--   until the next of the others is due (null: none is running).
-- Keeps: a replay that another transaction has locked is skipped, so that no step is taken twice.
-- Relies on: tenure_replays_running.
with picked as materialized (
    select r.*
    from tenure_replays r
    where r.state = 'running'
      and r.next_step_at <= coalesce($1::timestamptz, statement_timestamp())
      and ($2::bigint is null or r.id = $2)
    order by r.next_step_at
    limit 1
    for update skip locked
)
select p.id, p.filter::text, p.rate_per_minute, p.expected_items, p.reached_id, p.last_id, p.replayed,
       p.refused, p.state, p.created_at, p.next_step_at, p.ended_at,
       (select (extract(epoch from o.next_step_at - coalesce($1::timestamptz, statement_timestamp())) * 1000000)::bigint
        from tenure_replays o
        where o.state = 'running' and ($2::bigint is null or o.id = $2) and o.id is distinct from p.id
        order by o.next_step_at
        limit 1)
from (values (1)) as one
left join picked p on true
