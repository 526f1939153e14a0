-- retry: the job that repeats another. If there is none, enqueue writes one, in the same transaction.
-- Parameters: :id.
-- Returns: id, if there is one.
-- Keeps: nothing; it only reads. There is one writer, so no other connection writes one meanwhile.
-- Relies on: the unique index on retry_of.
-- statement: retried
select r.id
from tenure_jobs r
where r.retry_of = :id
