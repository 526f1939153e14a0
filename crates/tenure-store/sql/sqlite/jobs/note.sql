-- note: saves the progress of a job, if the caller still holds it.
-- Parameters: :now, :id, :token, :holder, :cursor, :chunks_total, :result (a null keeps the stored value),
--   :strict whether a lapsed lease is refused.
-- Returns: note: id, if it was written; look: locked_until, completed_at, failed_at, whether the caller
--   holds it.
-- Keeps: law 3: key, token, holder and state in one predicate.
-- Relies on: the key (the `+` rules out the index on lease_token).
-- statement: note
update tenure_jobs as t
set cursor = ifnull(:cursor, t.cursor),
    chunks_total = ifnull(:chunks_total, t.chunks_total),
    result = ifnull(:result, t.result)
where t.id = :id
  and +t.lease_token = :token
  and t.locked_by = :holder
  and t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
  and (not :strict or t.locked_until > :now)
returning id
-- statement: look
select t.locked_until, t.completed_at, t.failed_at,
       ifnull(t.lease_token = :token and t.locked_by = :holder, false)
from tenure_jobs t
where t.id = :id
