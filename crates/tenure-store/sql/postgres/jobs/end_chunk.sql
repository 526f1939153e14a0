-- end_chunk: ends the lease on a chunk with an outcome, or saves its cursor and keeps the lease.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 its job, $7 the token of the lease on
--   that job, $8 its holder, or null; $9 the outcome (synced, completed, failed, dead, released) or null:
--   the lease continues; $10 row_count, $11 error, $12 cursor or null: unchanged; $13 whether a lapsed
--   lease is refused.
-- Returns: id, if the statement took effect. No row: refused, look_chunk gives the reason.
-- Keeps: laws 3, 4, 6: the whole key, token, holder and state in one predicate, and the lease on the job as
--   a second guard. The row stays locked until the commit, so the next claim comes after it or skips the
--   row.
-- Relies on: the unique key; the key of the jobs. The current time is that of the statement, not of
--   the transaction.
update tenure_checkpoints t
set cursor = coalesce($12::text, t.cursor),
    last_synced_at = case when $9::text in ('synced', 'completed')
        then coalesce($1::timestamptz, statement_timestamp()) else t.last_synced_at end,
    row_count = case when $9 in ('synced', 'completed') then $10::bigint else t.row_count end,
    completed_at = case when $9 = 'completed' then coalesce($1::timestamptz, statement_timestamp()) end,
    failed_at = case when $9 = 'dead' then coalesce($1::timestamptz, statement_timestamp()) end,
    attempts = t.attempts + case when $9 in ('failed', 'dead', 'released') then 1 else 0 end,
    failures = t.failures + case when $9 in ('failed', 'dead') then 1 else 0 end,
    error_message = case when $9 in ('failed', 'dead') then $11::text else t.error_message end,
    settled_token = case when $9 is null then t.settled_token else $4::text || ' ' || $9 end,
    locked_until = case when $9 is null then t.locked_until end,
    locked_by = case when $9 is null then t.locked_by end,
    lease_token = case when $9 is null then t.lease_token end,
    claimed_at = case when $9 is null then t.claimed_at end
where t.matrix_id = $2::text
  and t.chunk_hash = $3::text
  and t.lease_token = $4
  and t.locked_by = $5::text
  and t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
  and (not $13::boolean or t.locked_until > coalesce($1::timestamptz, statement_timestamp()))
  and ($6::bigint is null or exists (
      select from tenure_jobs j
      where j.id = $6
        and j.lease_token = $7::text
        and j.locked_by = $8::text
        and j.completed_at is null
        and j.failed_at is null
        and j.locked_until is not null
        and (not $13 or j.locked_until > coalesce($1::timestamptz, statement_timestamp()))
  ))
returning t.id
