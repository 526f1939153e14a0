-- enqueue_call: writes one event, for callers with another driver.
-- Parameters: $1 topic, $2 payload, JSON text, $3 ordering key or null, $4 options of tenure_enqueue, JSON
--   text.
-- Returns: id of the new event, or of the existing one with the same dedupe key.
-- Keeps: the event exists if and only if the caller's transaction commits.
-- Relies on: tenure_enqueue, which checks everything again.
select tenure_enqueue($1, $2::text::json, $3, $4::text::json)
