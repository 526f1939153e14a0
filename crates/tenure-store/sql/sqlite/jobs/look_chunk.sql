-- look_chunk: how a chunk stands, and what a token has said of it last: before a claim, and after an end
-- that was refused.
-- Parameters: :matrix, :chunk, :token, :holder; :job, :token, :holder of the hold on a job.
-- Returns: job: until when the hold on it runs, if it is this one; chunk: locked_until, locked_by,
--   completed_at, failed_at, last_synced_at, whether the hold on it is this one, the word that the token
--   said last, if the last end was its own.
-- Keeps: law 9, until the hold on the chunk ends again; it only reads.
-- Relies on: the unique key; the key of the jobs (the `+` keeps the other index away).
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
