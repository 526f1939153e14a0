-- pause_queue: pauses or resumes a queue: claims skip a paused one.
-- Parameters: $1 name, $2 paused.
-- Returns: the name, or no row if the queue does not exist.
-- Keeps: claimed items stay claimed.
-- Relies on: tenure_queues_pkey.
update tenure_queues
set is_paused = $2
where name = $1
returning name
