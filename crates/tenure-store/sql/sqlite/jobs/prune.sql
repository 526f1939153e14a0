-- prune: deletes jobs past their retention, and the chunks of matrices that only they used.
-- Parameters: :done and :dead, the times before which they must have been settled, :limit of each; :ids as
--   JSON, :matrix.
-- Returns: completed, failed: id and matrix_id of each job to delete; the others: nothing.
-- Keeps: law 4: only settled jobs. A matrix `job-<number>` is deleted with the last job on it; others are
--   independent of jobs.
-- Relies on: the indexes on the settled jobs, on the jobs' matrix, the unique key of the chunks.
-- statement: completed
select id, matrix_id
from tenure_jobs
where completed_at < :done
order by completed_at
limit :limit
-- statement: failed
select id, matrix_id
from tenure_jobs
where failed_at < :dead
order by failed_at
limit :limit
-- statement: gone
delete from tenure_jobs where id in (select value from json_each(:ids))
-- statement: forgotten
delete from tenure_checkpoints
where matrix_id = :matrix
  and matrix_id glob 'job-[0-9]*' and not matrix_id glob 'job-*[^0-9]*'
  and not exists (select 1 from tenure_jobs j where j.matrix_id = :matrix)
