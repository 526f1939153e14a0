-- retry: which job repeats another. If none does, enqueue writes one, in the same transaction.
-- Parameters: :id.
-- Returns: id, if there is one.
-- Keeps: nothing; it only reads. There is one writer, so nobody else writes one meanwhile.
-- Relies on: the unique index on retry_of.
-- statement: retried
select r.id
from tenure_jobs r
where r.retry_of = :id
