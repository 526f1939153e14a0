-- leave: records that a worker stopped.
-- Parameters: :now, :worker.
-- Returns: nothing.
-- Keeps: only the first stop is recorded.
-- Relies on: the primary key of tenure_workers.

-- statement: leave
update tenure_workers
set left_at = :now
where worker = :worker
    and left_at is null;
