-- page: one page of jobs, newest first. There is a statement for each filter; one of them runs.
-- Parameters: :now, :kind, :matrix, :state in capitals, :below, only jobs with a lower number, :limit. A
--   filter that is not in the first condition of a statement may be null: all.
-- Returns: per job: id, kind, matrix_id, payload, priority, created_at, available_at, locked_until,
--   locked_by, claimed_at, fence, the counters, error_message, completed_at, failed_at, result, cursor,
--   chunks_total, retry_of, whether it was cancelled. No token: it is a secret of its holder.
-- Keeps: nothing; it only reads.
-- Relies on: the indexes on matrix and on kind, the partial ones on open and on failed jobs, the key: each
--   read backwards from the last number.
-- statement: matrix
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t
where t.matrix_id = :matrix
  and t.id < :below
  and (:kind is null or t.kind = :kind)
  and (:state is null or :state = case
      when t.failed_at is not null then 'FAILED'
      when t.completed_at is not null then 'COMPLETED'
      when t.locked_until is null then 'AVAILABLE'
      when t.locked_until > :now then 'RUNNING'
      else 'LAPSED' end)
order by t.id desc
limit :limit
-- statement: open
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t indexed by tenure_jobs_open
where t.completed_at is null
  and t.failed_at is null
  and t.id < :below
  and (:kind is null or t.kind = :kind)
  and :state = case
      when t.locked_until is null then 'AVAILABLE'
      when t.locked_until > :now then 'RUNNING'
      else 'LAPSED' end
order by t.id desc
limit :limit
-- statement: failed
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t indexed by tenure_jobs_failed
where t.failed_at is not null
  and t.id < :below
  and (:kind is null or t.kind = :kind)
order by t.id desc
limit :limit
-- statement: kind
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t
where t.kind = :kind
  and t.id < :below
  and (:state is null or t.completed_at is not null)
order by t.id desc
limit :limit
-- statement: all
select t.id, t.kind, t.matrix_id, t.payload, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result, t.cursor,
       t.chunks_total, t.retry_of, ifnull(substr(t.settled_token, -7) = ' buried', false) as is_cancelled
from tenure_jobs t
where t.id < :below
  and (:state is null or t.completed_at is not null)
order by t.id desc
limit :limit
