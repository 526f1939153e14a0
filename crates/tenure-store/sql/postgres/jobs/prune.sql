-- prune: deletes jobs past their retention, and the chunks of matrices that only they used.
-- Parameters: $1 now, $2 retention of completed jobs and $3 of failed ones, in microseconds, $4 maximum of
--   each.
-- Returns: one row: the numbers of deleted jobs: completed, failed.
-- Keeps: law 4: only settled jobs. A matrix `job-<number>` is deleted with the last job on it; others are
--   independent of jobs. A job that another transaction has locked is skipped.
-- Relies on: the indexes on the settled jobs, on the jobs' matrix, the unique key of the chunks.
with moment as materialized (
    select coalesce($1::timestamptz, statement_timestamp()) as now
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
