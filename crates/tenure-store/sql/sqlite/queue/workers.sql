-- workers: those seen last, first.
-- Parameters: :limit.
-- Returns: worker, host, pid, version, queues, concurrency, running, held, settings_version,
--   next_within_ms, started_at, seen_at, left_at.
-- Keeps: nothing; it only reads.
-- Relies on: nothing: the table has a row per worker, and prune takes the old ones.

-- statement: workers
select
    worker, host, pid, version, queues, concurrency, running, held, settings_version,
    next_within_ms, started_at, seen_at, left_at
from tenure_workers
order by seen_at desc, worker
limit :limit;
