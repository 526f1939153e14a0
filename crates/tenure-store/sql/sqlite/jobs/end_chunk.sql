-- end_chunk: ends the lease on a chunk with an outcome, or saves its cursor and keeps the lease. The lease
-- on the job was checked before, in the same transaction.
-- Parameters: :now, :matrix, :chunk, :token, :holder, :word, the outcome (synced, completed, failed, dead,
--   released) or null: the lease continues; :row_count, :error, :cursor or null: unchanged; :strict whether
--   a lapsed lease is refused.
-- Returns: id, if the statement took effect; no row: refused.
-- Keeps: laws 3, 4, 6: the whole key, token, holder and state in one predicate.
-- Relies on: the unique key (the `+` rules out the index on lease_token).
-- statement: end_chunk
update tenure_checkpoints as t
set cursor = ifnull(:cursor, t.cursor),
    last_synced_at = case when :word in ('synced', 'completed') then :now else t.last_synced_at end,
    row_count = case when :word in ('synced', 'completed') then :row_count else t.row_count end,
    completed_at = case when :word = 'completed' then :now end,
    failed_at = case when :word = 'dead' then :now end,
    attempts = t.attempts + ifnull(:word in ('failed', 'dead', 'released'), 0),
    failures = t.failures + ifnull(:word in ('failed', 'dead'), 0),
    error_message = case when :word in ('failed', 'dead') then :error else t.error_message end,
    settled_token = case when :word is null then t.settled_token else :token || ' ' || :word end,
    locked_until = case when :word is null then t.locked_until end,
    locked_by = case when :word is null then t.locked_by end,
    lease_token = case when :word is null then t.lease_token end,
    claimed_at = case when :word is null then t.claimed_at end
where t.matrix_id = :matrix
  and t.chunk_hash = :chunk
  and +t.lease_token = :token
  and t.locked_by = :holder
  and t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
  and (not :strict or t.locked_until > :now)
returning id
