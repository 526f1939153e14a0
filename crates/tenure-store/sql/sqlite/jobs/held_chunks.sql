-- held_chunks: chunks with a lease, live or lapsed, by the end of their term.
-- Parameters: :matrix, or null for all matrices whose newest job is not settled or that have no job;
--   :before, only chunks whose term was over at this time, or null for all; :limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message; and matrix_id.
-- Keeps: nothing; it only reads.
-- Relies on: the partial index of chunks with a lease, which are few; the index on the jobs' matrix.
-- statement: held_chunks
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message, t.matrix_id
from tenure_checkpoints t indexed by tenure_checkpoints_claimed
where t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
  and (:before is null or t.locked_until <= :before)
  and case when :matrix is null
           then ifnull((select j.completed_at is null and j.failed_at is null
                        from tenure_jobs j indexed by tenure_jobs_matrix
                        where j.matrix_id = t.matrix_id
                        order by j.id desc
                        limit 1), true)
           else t.matrix_id = :matrix end
order by t.locked_until, t.id
limit :limit
