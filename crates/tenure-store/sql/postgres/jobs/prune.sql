-- prune: deletes jobs that ended long ago, and the chunks of the matrices that were theirs alone.
-- Parameters: $1 now, $2 how long what is completed is kept, $3 what failed, in us, $4 at most so many of each.
-- Returns: one row: completed, failed: how many.
-- Keeps: law 4: only what has ended. A matrix `job-<number>` lives as long as a job on it; others have a
--   life of their own. A job that someone else has in hand is passed by.
-- Relies on: the indexes on the ended jobs, on the jobs' matrix, the unique key of the chunks.
with moment as materialized (
    select coalesce($1::timestamptz, now()) as now
), completed as materialized (
    select t.id, t.matrix_id
    from tenure_jobs t
    where t.completed_at < (select m.now - $2::bigint * interval '1 us' from moment m)
    order by t.completed_at
    limit $4::bigint
    for update skip locked
), failed as materialized (
    select t.id, t.matrix_id
    from tenure_jobs t
    where t.failed_at < (select m.now - $3::bigint * interval '1 us' from moment m)
    order by t.failed_at
    limit $4::bigint
    for update skip locked
), old as materialized (
    select id, matrix_id from completed union all select id, matrix_id from failed
), gone as (
    delete from tenure_jobs t where t.id = any (array(select id from old))
), own as materialized (
    select distinct o.matrix_id
    from old o
    where o.matrix_id ~ '^job-[0-9]+$'
      and not exists (
          select from tenure_jobs j
          where j.matrix_id = o.matrix_id and j.id <> all (array(select id from old))
      )
), forgotten as (
    delete from tenure_checkpoints c where c.matrix_id = any (array(select matrix_id from own))
)
select (select count(*) from completed) as completed, (select count(*) from failed) as failed
