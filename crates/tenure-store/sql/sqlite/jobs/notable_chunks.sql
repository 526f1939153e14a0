-- notable_chunks: chunks of a matrix that an operator should see: first those with a lease, live or lapsed,
-- then those that failed for good, then those that were released with an error; each by name.
-- Parameters: :matrix, :limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key: the chunks of the matrix are all scanned, as in progress.sql.
-- statement: notable_chunks
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message
from tenure_checkpoints t
where t.matrix_id = :matrix
  and t.completed_at is null
  and (t.locked_until is not null or t.failed_at is not null or t.error_message is not null)
order by t.locked_until is null, t.failed_at is null, t.chunk_hash
limit :limit
