-- job: all facts of one job.
-- Parameters: :id.
-- Returns: per job: id, kind, matrix_id, payload, priority, created_at, available_at, locked_until,
--   locked_by, claimed_at, fence, the counters, error_message, completed_at, failed_at, result, cursor,
--   chunks_total, retry_of, whether it was cancelled. No token: it is a secret of its holder.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
-- statement: job
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t
where t.id = :id
