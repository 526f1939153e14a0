-- look_chunk: how a chunk stands, and what a token has said of it last: the answer to what was refused. It
-- runs in a snapshot of its own, so it also sees an end that ran beside its repeat.
-- Parameters: $1 now, $2 matrix, $3 chunk, $4 token, $5 holder, $6 the job it is for, $7 the token of the
--   hold on that job, $8 its holder, or null.
-- Returns: one row: now; whether there is no job, or its hold is this one (is_job_held), and live
--   (is_job_live); whether there is such a chunk (is_there), its locked_until, locked_by, completed_at,
--   failed_at, last_synced_at; whether the hold on it is this one (is_mine); the word that the token said
--   last, if the last end was its own.
-- Keeps: law 9, until the hold on the chunk ends again; it only reads.
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
