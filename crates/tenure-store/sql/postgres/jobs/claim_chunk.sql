-- claim_chunk: claims a chunk that exists. A lapsed chunk counts as free.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 term in microseconds, $7 refuse a chunk
--   that was done less than this many microseconds ago, or null; $8 its job, $9 the token of the lease on
--   that job, $10 its holder, or null.
-- Returns: fence, claimed_at, locked_until, cursor, attempts; no row: look_chunk gives the reason.
-- Keeps: laws 1, 2, 6. The predicate has the whole key. A row that another transaction has locked is
--   skipped. The lease on the job must exist and be live.
-- Relies on: the unique key; the key of the jobs. The current time is that of the statement, not of
--   the transaction.
--   Creating a chunk is a separate statement: as a branch of this one it would add half the cost of the
--   update.
update tenure_checkpoints t
set locked_until = coalesce($1::timestamptz, statement_timestamp())
        + $6::bigint * interval '1 microsecond',
    locked_by = $5::text,
    lease_token = $4::text,
    claimed_at = coalesce($1::timestamptz, statement_timestamp()),
    fence = tenure_next_fence(),
    attempts = t.attempts + case when t.locked_until is null then 0 else 1 end,
    crashes = t.crashes + case when t.locked_until is null then 0 else 1 end,
    error_message = case when t.locked_until is null then t.error_message else 'lease lapsed' end
where t.id = (
    select c.id
    from tenure_checkpoints c
    where c.matrix_id = $2::text
      and c.chunk_hash = $3::text
      and c.completed_at is null
      and c.failed_at is null
      and (c.locked_until is null or c.locked_until <= coalesce($1::timestamptz, statement_timestamp()))
      and ($7::bigint is null or c.last_synced_at is null
           or c.last_synced_at <= coalesce($1::timestamptz, statement_timestamp())
                  - $7::bigint * interval '1 microsecond')
      and ($8::bigint is null or exists (
          select from tenure_jobs j
          where j.id = $8
            and j.lease_token = $9::text
            and j.locked_by = $10::text
            and j.completed_at is null
            and j.failed_at is null
            and j.locked_until > coalesce($1::timestamptz, statement_timestamp())
      ))
    for update skip locked
)
returning t.fence, t.claimed_at, t.locked_until, t.cursor, t.attempts
