-- claim_chunk: gives a chunk a lease; one that is not there is made. What lapsed is as good as free.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 term in microseconds, $7 not if it was
--   done less than this many microseconds ago, or null; $8 the job it is for, $9 the token of the hold on
--   that job, $10 its holder, or null.
-- Returns: fence, claimed_at, locked_until, cursor, attempts; no row: look_chunk tells why.
-- Keeps: laws 1, 2, 6. The whole key in every predicate. A row that someone has in hand is passed by; only
--   one that someone makes this very moment is waited for. The job's hold must stand and be live.
-- Relies on: the unique key; the key of the jobs.
with moment as materialized (
    select coalesce($1::timestamptz, clock_timestamp()) as now
), asked as materialized (
    select m.now
    from moment m
    where $8::bigint is null
       or exists (
           select from tenure_jobs j
           where j.id = $8
             and j.lease_token = $9::text
             and j.locked_by = $10::text
             and j.completed_at is null
             and j.failed_at is null
             and j.locked_until > m.now
       )
), free as materialized (
    select t.id, t.locked_until is not null as has_lapsed, a.now
    from tenure_checkpoints t cross join asked a
    where t.matrix_id = $2::text
      and t.chunk_hash = $3::text
      and t.completed_at is null
      and t.failed_at is null
      and (t.locked_until is null or t.locked_until <= a.now)
      and ($7::bigint is null or t.last_synced_at is null
           or t.last_synced_at <= a.now - $7::bigint * interval '1 microsecond')
    for update of t skip locked
), claimed as (
    update tenure_checkpoints t
    set locked_until = f.now + $6::bigint * interval '1 microsecond',
        locked_by = $5::text,
        lease_token = $4::text,
        claimed_at = f.now,
        fence = nextval('tenure_fence'),
        attempts = t.attempts + case when f.has_lapsed then 1 else 0 end,
        crashes = t.crashes + case when f.has_lapsed then 1 else 0 end,
        error_message = case when f.has_lapsed then 'lease lapsed' else t.error_message end
    from free f
    where t.id = f.id
    returning t.fence, t.claimed_at, t.locked_until, t.cursor, t.attempts
), made as (
    insert into tenure_checkpoints
        (matrix_id, chunk_hash, created_at, locked_until, locked_by, lease_token, claimed_at, fence)
    select $2, $3, a.now, a.now + $6::bigint * interval '1 microsecond', $5, $4, a.now,
           nextval('tenure_fence')
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
