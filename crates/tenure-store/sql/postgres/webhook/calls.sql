-- calls: the calls of a delivery, in the order of their fences.
-- Parameters: $1 delivery.
-- Returns: fence, attempt, began_at, outcome, status, error, detail.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_delivery_attempts_pkey.
select fence, attempt, began_at, outcome, http_status, error, detail::text
from tenure_delivery_attempts
where delivery = $1
order by fence
