-- workers: those seen last, first.
-- Parameters: $1 limit.
-- Returns: now, worker, host, pid, version, queues, concurrency, running, held, settings_version,
--   next_within_ms, started_at, seen_at, left_at. One row with nothing but now when there is none.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_workers_pkey, read whole: it has a row per worker, and prune takes the old ones.
select now() as now, w.worker, w.host, w.pid, w.version, w.queues, w.concurrency, w.running, w.held,
       w.settings_version, w.next_within_ms, w.started_at, w.seen_at, w.left_at
from (select 1) as always
left join (
    select *
    from tenure_workers
    order by seen_at desc, worker
    limit $1
) w on true
order by w.seen_at desc, w.worker
