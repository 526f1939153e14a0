-- pause_queue: pauses or resumes a queue with its separate topics: claims skip a paused one.
-- Parameters: :name, :paused.
-- Returns: the numbers of the queue and its separate topics; no row: the queue does not exist.
-- Keeps: existing leases are not changed.
-- Relies on: the unique index on the names.

-- statement: pause_queue
update tenure_queues
set is_paused = :paused
where name = :name
returning number;
