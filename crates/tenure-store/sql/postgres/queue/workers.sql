-- workers: the workers that reported last, the latest first.
-- Parameters: $1 limit.
-- Returns: now, worker, host, pid, version, queues, concurrency, running, held, settings_version,
--   next_report_within_ms, started_at, reported_at, left_at, topics. One row with only now if there are none.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_workers_pkey, read whole: it has a row per worker, and prune deletes the old ones.
select now() as now, w.worker, w.host, w.pid, w.version, w.queues, w.concurrency, w.running, w.held,
       w.settings_version, w.next_report_within_ms, w.started_at, w.reported_at, w.left_at,
       w.topics
from (select 1) as always
left join (
    select *
    from tenure_workers
    order by reported_at desc, worker
    limit $1
) w on true
order by w.reported_at desc, w.worker
