-- pause_queue: lets claims pass a queue by, or no longer.
-- Parameters: $1 name, $2 paused.
-- Returns: the name, or no row when there is no such queue.
-- Keeps: what is claimed stays claimed.
-- Relies on: tenure_queues_pkey.
update tenure_queues
set paused = $2
where name = $1
returning name
