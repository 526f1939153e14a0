-- calls: the calls of a delivery, in the order of their fences.
-- Parameters: :delivery.
-- Returns: delivery, fence, attempt, began_at, outcome, status, error, detail.
-- Keeps: nothing; it only reads.
-- Relies on: the primary key.

-- statement: calls
select delivery, fence, attempt, began_at, outcome, http_status, error, detail
from tenure_delivery_attempts
where delivery = :delivery
order by fence;
