-- look_chunk: the state of a chunk, and the outcome that a token reported last: before a claim, and after a
-- refused end.
-- Parameters: :matrix, :chunk, :token, :holder; for the job: :job, and :token and :holder of the lease on
--   it.
-- Returns: job: the end of the lease on it, if the caller holds it; chunk: locked_until, locked_by,
--   completed_at, failed_at, last_synced_at, whether the caller holds it, the outcome of the last
--   end, if it was made under this token.
-- Keeps: law 9, until the lease on the chunk ends again; it only reads.
-- Relies on: the unique key; the key of the jobs (the `+` rules out the index on lease_token).
-- statement: job
select t.locked_until
from tenure_jobs t
where t.id = :job
  and +t.lease_token = :token
  and t.locked_by = :holder
  and t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
-- statement: chunk
select t.locked_until, t.locked_by, t.completed_at, t.failed_at, t.last_synced_at,
       ifnull(t.lease_token = :token and t.locked_by = :holder
              and t.completed_at is null and t.failed_at is null, false),
       case when substr(t.settled_token, 1, length(:token) + 1) = :token || ' '
            then substr(t.settled_token, length(:token) + 2) end
from tenure_checkpoints t
where t.matrix_id = :matrix
  and t.chunk_hash = :chunk
