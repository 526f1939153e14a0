-- retry: writes a job that repeats a settled one, unless another job does so already.
-- Parameters: $1 now, $2 the job to repeat.
-- Returns: one row: id of the new job or null; the job that repeats it already, or null (retried_by);
--   whether the job exists (is_there), and whether it is settled (has_ended). If id and retried_by are null
--   and has_ended is true, a concurrent retry was faster: run the statement again.
-- Keeps: law 4: a settled job does not change. Of several concurrent retries the index lets one pass; the
--   others wait for its commit. The lock keeps prune from deleting the job and its chunks, which the new
--   job also uses.
-- Relies on: the key; the unique index on retry_of.
with old as materialized (
    select t.id, t.kind, t.matrix_id, t.payload, t.priority,
           num_nonnulls(t.completed_at, t.failed_at) > 0 as has_ended
    from tenure_jobs t
    where t.id = $2::bigint
    for key share
), written as (
    insert into tenure_jobs (kind, matrix_id, payload, priority, created_at, retry_of)
    select o.kind, o.matrix_id, o.payload, o.priority, coalesce($1::timestamptz, clock_timestamp()), o.id
    from old o
    where o.has_ended
      and not exists (select from tenure_jobs r where r.retry_of = o.id)
    on conflict (retry_of) where retry_of is not null do nothing
    returning id
)
select (select w.id from written w) as id,
       (select r.id from tenure_jobs r where r.retry_of = $2) as retried_by,
       exists (select from old) as is_there,
       coalesce((select o.has_ended from old o), false) as has_ended
