-- claim_chunk: claims a chunk; a missing one is created. A lapsed chunk counts as free. look_chunk has
-- checked before, in the same transaction, that the chunk can be claimed.
-- Parameters: :now, :matrix, :chunk, :token, :holder, :until, :fence.
-- Returns: fence: the number of this claim; claimed and made: cursor and attempts.
-- Keeps: laws 1, 2, 6. The predicate has the whole key; there is one writer.
-- Relies on: the unique key.
-- statement: fence
update tenure_fence set fence = fence + 1 returning fence
-- statement: claimed
update tenure_checkpoints as t
set locked_until = :until,
    locked_by = :holder,
    lease_token = :token,
    claimed_at = :now,
    fence = :fence,
    attempts = t.attempts + (t.locked_until is not null),
    crashes = t.crashes + (t.locked_until is not null),
    error_message = case when t.locked_until is null then t.error_message else 'lease lapsed' end
where t.matrix_id = :matrix
  and t.chunk_hash = :chunk
  and t.completed_at is null
  and t.failed_at is null
  and (t.locked_until is null or t.locked_until <= :now)
returning cursor, attempts
-- statement: made
insert into tenure_checkpoints
    (matrix_id, chunk_hash, created_at, locked_until, locked_by, lease_token, claimed_at, fence)
values
    (:matrix, :chunk, :now, :until, :holder, :token, :now, :fence)
returning cursor, attempts
