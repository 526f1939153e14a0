-- progress: the progress of the work on a matrix, in one snapshot. A chunk that is claimed again counts as
-- running, not as done.
-- Parameters: :now, :matrix.
-- Returns: one row: total, from the newest job that reports one; done, running, failed; rows of the done
--   chunks, approximate above 2^53; began_at, when the first chunk was created.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key: the chunks of the matrix are all scanned; the index on the jobs' matrix.
-- statement: progress
select (select j.chunks_total
        from tenure_jobs j indexed by tenure_jobs_matrix
        where j.matrix_id = :matrix and j.chunks_total is not null
        order by j.id desc
        limit 1),
       count(*) filter (where t.is_done),
       count(*) filter (where t.is_running),
       count(*) filter (where t.failed_at is not null),
       cast(min(total(t.row_count) filter (where t.is_done), 9.2e18) as integer),
       min(t.created_at)
from (
    select c.created_at, c.row_count, c.failed_at,
           c.completed_at is null and c.failed_at is null
               and ifnull(c.locked_until > :now, false) as is_running,
           c.failed_at is null and ifnull(c.completed_at, c.last_synced_at) is not null
               and (c.locked_until is null or c.locked_until <= :now) as is_done
    from tenure_checkpoints c
    where c.matrix_id = :matrix
) as t
