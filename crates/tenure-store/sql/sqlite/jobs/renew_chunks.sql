-- renew_chunks: extends a lease on a chunk that exists and is live; run for each chunk.
-- Parameters: :now, :matrix, :chunk, :token, :holder, :until the new end.
-- Returns: id, until and fence, if it was renewed. No row: refused, look_chunk gives the reason.
-- Keeps: law 3: the whole key, token, holder and state in one predicate; the end never moves back and
--   nothing else changes.
-- Relies on: the unique key (the `+` rules out the index on lease_token).
-- statement: renew_chunks
update tenure_checkpoints as t
set locked_until = max(t.locked_until, :until)
where t.matrix_id = :matrix
  and t.chunk_hash = :chunk
  and +t.lease_token = :token
  and t.locked_by = :holder
  and t.completed_at is null
  and t.failed_at is null
  and t.locked_until > :now
returning id, locked_until, fence
