-- chunks: one page of the chunks of a matrix, by name.
-- Parameters: $1 now, $2 matrix, $3 only chunks after this name (null: all), $4 limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message; and now.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key.
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message,
       coalesce($1::timestamptz, clock_timestamp()) as now
from tenure_checkpoints t
where t.matrix_id = $2::text
  and t.chunk_hash > coalesce($3::text, '')
order by t.matrix_id, t.chunk_hash
limit $4::bigint
