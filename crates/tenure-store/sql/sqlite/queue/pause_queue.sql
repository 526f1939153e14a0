-- pause_queue: pauses or resumes a queue: claims skip a paused one.
-- Parameters: :name, :paused.
-- Returns: the number of the queue; no row: the queue does not exist.
-- Keeps: existing leases are not changed.
-- Relies on: the unique index on the names.

-- statement: pause_queue
update tenure_queues
set is_paused = :paused
where name = :name
returning number;
