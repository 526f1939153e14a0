-- make_chunk: creates a chunk that does not exist, claimed by the caller.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 term in microseconds, $7 its job, $8 the
--   token of the lease on that job, $9 its holder, or null.
-- Returns: fence, claimed_at, locked_until, cursor, attempts; no row: look_chunk gives the reason.
-- Keeps: laws 1, 2, 6. It waits only for another transaction that is creating the same chunk. The lease on
--   the job must exist and be live.
-- Relies on: the unique key; the key of the jobs. The current time is that of the statement, not of
--   the transaction.
insert into tenure_checkpoints
    (matrix_id, chunk_hash, created_at, locked_until, locked_by, lease_token, claimed_at, fence)
select $2::text, $3::text, coalesce($1::timestamptz, statement_timestamp()),
       coalesce($1::timestamptz, statement_timestamp()) + $6::bigint * interval '1 microsecond', $5::text,
       $4::text, coalesce($1::timestamptz, statement_timestamp()), tenure_next_fence()
where not exists (
        select from tenure_checkpoints t where t.matrix_id = $2 and t.chunk_hash = $3
    )
  and ($7::bigint is null or exists (
      select from tenure_jobs j
      where j.id = $7
        and j.lease_token = $8::text
        and j.locked_by = $9::text
        and j.completed_at is null
        and j.failed_at is null
        and j.locked_until > coalesce($1::timestamptz, statement_timestamp())
  ))
on conflict (matrix_id, chunk_hash) do nothing
returning fence, claimed_at, locked_until, cursor, attempts
