-- claim_chunk: gives a chunk a lease; one that is not there is made. What lapsed is as good as free.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 term in microseconds, $7 not if it was
--   done less than this many microseconds ago, or null; $8 the job it is for, $9 the token of the hold on
--   that job, $10 its holder, or null.
-- Returns: fence, claimed_at, locked_until, cursor, attempts; no row: look_chunk tells why.
-- Keeps: laws 1, 2, 6. The whole key in every predicate. A row that someone has in hand is passed by; only
--   one that someone makes this very moment is waited for. The job's hold must stand and be live.
-- Relies on: the unique key; the key of the jobs. The moment of the statement, not of a transaction.
with asked as materialized (
    select
    where $8::bigint is null
       or exists (
           select from tenure_jobs j
           where j.id = $8
             and j.lease_token = $9::text
             and j.locked_by = $10::text
             and j.completed_at is null
             and j.failed_at is null
             and j.locked_until > coalesce($1::timestamptz, statement_timestamp())
       )
), claimed as (
    update tenure_checkpoints t
    set locked_until = coalesce($1::timestamptz, statement_timestamp())
            + $6::bigint * interval '1 microsecond',
        locked_by = $5::text,
        lease_token = $4::text,
        claimed_at = coalesce($1::timestamptz, statement_timestamp()),
        fence = nextval('tenure_fence'),
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
          and exists (select from asked)
        for update skip locked
    )
    returning t.fence, t.claimed_at, t.locked_until, t.cursor, t.attempts
), made as (
    insert into tenure_checkpoints
        (matrix_id, chunk_hash, created_at, locked_until, locked_by, lease_token, claimed_at, fence)
    select $2, $3, coalesce($1::timestamptz, statement_timestamp()),
           coalesce($1::timestamptz, statement_timestamp()) + $6::bigint * interval '1 microsecond', $5, $4,
           coalesce($1::timestamptz, statement_timestamp()), nextval('tenure_fence')
    from asked a
    where not exists (
        select from tenure_checkpoints t where t.matrix_id = $2 and t.chunk_hash = $3
    )
    on conflict (matrix_id, chunk_hash) do nothing
    returning fence, claimed_at, locked_until, cursor, attempts
)
select fence, claimed_at, locked_until, cursor, attempts from claimed
union all
select fence, claimed_at, locked_until, cursor, attempts from made
