-- workers: the workers that reported last, the latest first.
-- Parameters: :limit.
-- Returns: worker, host, pid, version, queues, concurrency, running, held, settings_version,
--   next_report_within_ms, started_at, reported_at, left_at, topics.
-- Keeps: nothing; it only reads.
-- Relies on: nothing: the table has a row per worker, and prune deletes the old ones.

-- statement: workers
select
    worker, host, pid, version, queues, concurrency, running, held, settings_version,
    next_report_within_ms, started_at, reported_at, left_at, topics
from tenure_workers
order by reported_at desc, worker
limit :limit;
