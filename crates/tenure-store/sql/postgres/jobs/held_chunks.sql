-- held_chunks: chunks with a lease, live or lapsed, by the end of their term.
-- Parameters: $1 now, $2 matrix, or null for all matrices whose newest job is not settled or that have no
--   job, $3 only chunks whose term has been over for this many microseconds, or null for all, $4 limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message; and now; and matrix_id.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key: the plan goes from matrix to matrix, and scans all chunks of those whose
--   newest job is open or does not exist, as progress.sql does; `offset 0` keeps the planner from the
--   opposite order. The index on the jobs' matrix.
with recursive every (matrix_id) as (
    select min(t.matrix_id) from tenure_checkpoints t where $2::text is null
    union all
    select (select min(t.matrix_id) from tenure_checkpoints t where t.matrix_id > e.matrix_id)
    from every e
    where e.matrix_id is not null
), open (matrix_id) as (
    select e.matrix_id
    from every e
    where e.matrix_id is not null
      and coalesce((select j.completed_at is null and j.failed_at is null
                    from tenure_jobs j
                    where j.matrix_id = e.matrix_id
                    order by j.matrix_id desc, j.id desc
                    limit 1), true)
    union all
    select $2 where $2 is not null
)
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message, m.now, t.matrix_id
from (select coalesce($1::timestamptz, clock_timestamp()) as now) as m
cross join open o
cross join lateral (
    select c.*
    from tenure_checkpoints c
    where c.matrix_id = o.matrix_id
      and c.completed_at is null
      and c.failed_at is null
      and c.locked_until is not null
    offset 0
) as t
where ($3::bigint is null or t.locked_until <= m.now - $3::bigint * interval '1 microsecond')
order by t.locked_until, t.id
limit $4::bigint
