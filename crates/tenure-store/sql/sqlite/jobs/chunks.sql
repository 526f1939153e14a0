-- chunks: one page of the chunks of a matrix, by name.
-- Parameters: :matrix, :after, only chunks after this name (null: all), :limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key.
-- statement: chunks
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message
from tenure_checkpoints t
where t.matrix_id = :matrix
  and t.chunk_hash > ifnull(:after, '')
order by t.chunk_hash
limit :limit
