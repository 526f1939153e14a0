-- pause_queue: pauses or resumes a queue with its separate topics: claims skip a paused one.
-- Parameters: $1 name, $2 paused.
-- Returns: the name, once per separate topic and once for the queue, or no row if the queue does not exist.
-- Keeps: claimed items stay claimed.
-- Relies on: tenure_queues_pkey.
update tenure_queues
set is_paused = $2
where name = $1
returning name
