-- enqueue: writes jobs, all or none. A job without a matrix gets its own, named after its number.
-- Parameters: $1 now; one entry per job of: $2 kind, $3 matrix or null, $4 payload, $5 priority, $6 delay
--   in microseconds, $7 the job that it repeats or null.
-- Returns: the id of each job. Ids rise in the order of the lists.
-- Keeps: law 8.
-- Relies on: nothing; numbers are drawn in the order of the lists.
with moment as materialized (
    select coalesce($1::timestamptz, clock_timestamp()) as now
), told as (
    select u.kind, u.matrix_id, u.payload, u.priority, u.delay, u.retry_of
    from unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::bigint[], $7::bigint[])
         with ordinality as u(kind, matrix_id, payload, priority, delay, retry_of, nth)
    order by u.nth
), numbered as materialized (
    select nextval('tenure_job_id') as id, told.* from told
)
insert into tenure_jobs
    (id, kind, matrix_id, payload, priority, created_at, available_at, retry_of)
select n.id, n.kind, coalesce(n.matrix_id, 'job-' || n.id), n.payload::json, n.priority, m.now,
       case when n.delay > 0 then m.now + n.delay * interval '1 microsecond' end, n.retry_of
from numbered n cross join moment m
order by n.id
returning id
