-- page: one page of jobs, newest first. There is a branch for each filter; only one runs.
-- Parameters: $1 now, $2 kind, $3 matrix, $4 state in capitals (each null for all), $5 only jobs with a
--   lower number (null: all), $6 limit.
-- Returns: per job: id, kind, matrix_id, payload, priority, created_at, available_at, locked_until,
--   locked_by, claimed_at, fence, the counters, error_message, completed_at, failed_at, result, cursor,
--   chunks_total, retry_of, whether it was cancelled; and now. No token: it is a secret of its holder.
-- Keeps: nothing; it only reads.
-- Relies on: the indexes on matrix and on kind, the partial ones on open and on failed jobs, the key: each
--   read backwards from the last number.
with moment as materialized (
    select coalesce($1::timestamptz, clock_timestamp()) as now,
           coalesce($5::bigint, 9223372036854775807) as below
), page as materialized (
    (select t.id
     from tenure_jobs t cross join moment m
     where $3::text is not null
       and t.matrix_id = $3
       and t.id < m.below
       and ($2::text is null or t.kind = $2)
       and ($4::text is null or $4 = case
            when t.failed_at is not null then 'FAILED'
            when t.completed_at is not null then 'COMPLETED'
            when t.locked_until is null then 'AVAILABLE'
            when t.locked_until > m.now then 'RUNNING'
            else 'LAPSED' end)
     order by t.matrix_id desc, t.id desc
     limit $6::bigint)
    union all
    (select t.id
     from tenure_jobs t cross join moment m
     where $3::text is null
       and $4::text in ('AVAILABLE', 'RUNNING', 'LAPSED')
       and t.completed_at is null
       and t.failed_at is null
       and t.id < m.below
       and ($2::text is null or t.kind = $2)
       and $4 = case
            when t.locked_until is null then 'AVAILABLE'
            when t.locked_until > m.now then 'RUNNING'
            else 'LAPSED' end
     order by t.id desc
     limit $6::bigint)
    union all
    (select t.id
     from tenure_jobs t cross join moment m
     where $3::text is null
       and $4::text = 'FAILED'
       and t.failed_at is not null
       and t.id < m.below
       and ($2::text is null or t.kind = $2)
     order by t.id desc
     limit $6::bigint)
    union all
    (select t.id
     from tenure_jobs t cross join moment m
     where $3::text is null
       and ($4::text is null or $4 = 'COMPLETED')
       and $2::text is not null
       and t.kind = $2
       and t.id < m.below
       and ($4 is null or t.completed_at is not null)
     order by t.kind desc, t.id desc
     limit $6::bigint)
    union all
    (select t.id
     from tenure_jobs t cross join moment m
     where $3::text is null
       and ($4::text is null or $4 = 'COMPLETED')
       and $2::text is null
       and t.id < m.below
       and ($4 is null or t.completed_at is not null)
     order by t.id desc
     limit $6::bigint)
)
select t.id, t.kind, t.matrix_id, t.payload::text, t.priority, t.created_at, t.available_at,
       t.locked_until, t.locked_by, t.claimed_at, t.fence, t.attempts, t.failures, t.crashes,
       t.generation, t.error_message, t.completed_at, t.failed_at, t.result::text, t.cursor,
       t.chunks_total, t.retry_of, coalesce(right(t.settled_token, 7) = ' buried', false) as is_cancelled,
       m.now
from tenure_jobs t cross join moment m
where t.id = any (array(select id from page))
order by t.id desc
