-- pause_queue: lets claims pass a queue by, or no longer.
-- Parameters: :name, :paused.
-- Returns: the number of the queue; no row: there is none of that name.
-- Keeps: leases that stand are not touched.
-- Relies on: the unique index on their names.

-- statement: pause_queue
update tenure_queues
set paused = :paused
where name = :name
returning number;
