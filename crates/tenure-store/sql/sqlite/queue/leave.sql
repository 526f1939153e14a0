-- leave: writes down that a worker took its leave.
-- Parameters: :now, :worker.
-- Returns: nothing.
-- Keeps: a leave is taken once; a second one changes nothing.
-- Relies on: the primary key of tenure_workers.

-- statement: leave
update tenure_workers
set left_at = :now
where worker = :worker
    and left_at is null;
