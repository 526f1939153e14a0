-- report: records the report of a worker and its time.
-- Parameters: :now, :worker, :host, :pid, :version, :queues, :concurrency, :running, :held,
--   :settings_version, :next_report_within_ms, :topics.
-- Returns: nothing.
-- Keeps: started_at is that of the first report; a recorded stop stays recorded.
-- Relies on: the primary key of tenure_workers.

-- statement: report
insert into tenure_workers (
    worker, host, pid, version, queues, concurrency, running, held, settings_version,
    next_report_within_ms, topics, started_at, reported_at
)
values (
    :worker, :host, :pid, :version, :queues, :concurrency, :running, :held, :settings_version,
    :next_report_within_ms, :topics, :now, :now
)
on conflict (worker) do update set
    host = excluded.host,
    pid = excluded.pid,
    version = excluded.version,
    queues = excluded.queues,
    concurrency = excluded.concurrency,
    running = excluded.running,
    held = excluded.held,
    settings_version = excluded.settings_version,
    next_report_within_ms = excluded.next_report_within_ms,
    topics = excluded.topics,
    reported_at = excluded.reported_at;
