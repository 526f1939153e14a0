-- report: records the report of a worker and its time.
-- Parameters: $1 now, $2 worker, $3 host, $4 pid, $5 version, $6 queues, $7 concurrency, $8 running, $9
--   held, $10 version of the settings, $11 ms to the next report, $12 topics.
-- Returns: nothing.
-- Keeps: started_at is that of the first report; a recorded stop stays recorded.
-- Relies on: tenure_workers_pkey.
insert into tenure_workers
    (worker, host, pid, version, queues, concurrency, running, held, settings_version,
     next_report_within_ms, topics, started_at, reported_at)
values ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
        coalesce($1::timestamptz, statement_timestamp()),
        coalesce($1::timestamptz, statement_timestamp()))
on conflict (worker) do update
set host = excluded.host, pid = excluded.pid, version = excluded.version,
    queues = excluded.queues, concurrency = excluded.concurrency, running = excluded.running,
    held = excluded.held, settings_version = excluded.settings_version,
    next_report_within_ms = excluded.next_report_within_ms, topics = excluded.topics,
    reported_at = excluded.reported_at
