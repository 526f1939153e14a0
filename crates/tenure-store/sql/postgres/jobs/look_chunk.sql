-- look_chunk: the state of a chunk, and the outcome that a token reported last: the reason for a
-- refusal. It runs in a newer snapshot, so it also sees an end that ran concurrently with its
-- repeat.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 its job, $7 the token of the lease on
--   that job, $8 its holder, or null.
-- Returns: one row: now; whether there is no job, or the caller holds it (is_job_held), and that lease is
--   live (is_job_live); whether the chunk exists (is_there), its locked_until, locked_by, completed_at,
--   failed_at, last_synced_at; whether the caller holds it (is_mine); the outcome of the last end, if
--   it was made under this token.
-- Keeps: law 9, until the lease on the chunk ends again; it only reads.
-- Relies on: the unique key; the key of the jobs.
select m.now,
       $6::bigint is null or j.id is not null as is_job_held,
       $6::bigint is null or coalesce(j.locked_until > m.now, false) as is_job_live,
       t.id is not null as is_there, t.locked_until, t.locked_by, t.completed_at, t.failed_at,
       t.last_synced_at,
       coalesce(t.lease_token = $4::text and t.locked_by = $5::text
                and t.completed_at is null and t.failed_at is null, false) as is_mine,
       case when starts_with(t.settled_token, $4 || ' ')
            then substr(t.settled_token, length($4) + 2) end as word
from (select coalesce($1::timestamptz, clock_timestamp()) as now) as m
left join tenure_checkpoints t on t.matrix_id = $2::text and t.chunk_hash = $3::text
left join tenure_jobs j
    on j.id = $6
    and j.lease_token = $7::text
    and j.locked_by = $8::text
    and j.completed_at is null
    and j.failed_at is null
    and j.locked_until is not null
