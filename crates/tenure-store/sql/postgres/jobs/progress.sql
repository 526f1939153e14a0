-- progress: the progress of the work on a matrix, in one snapshot. A chunk that is claimed again counts as
-- running, not as done.
-- Parameters: $1 now, $2 matrix.
-- Returns: one row: total, from the newest job that reports one; done, running, failed; rows of the done
--   chunks, at most the maximum of a bigint; began_at, when the first chunk was created; and now.
-- Keeps: nothing; it only reads.
-- Relies on: the unique key: the chunks of the matrix are all scanned; the index on the jobs' matrix.
select (select j.chunks_total
        from tenure_jobs j
        where j.matrix_id = $2::text and j.chunks_total is not null
        order by j.matrix_id desc, j.id desc
        limit 1) as total,
       count(*) filter (where t.is_done) as done,
       count(*) filter (where t.is_running) as running,
       count(*) filter (where t.failed_at is not null) as failed,
       least(coalesce(sum(t.row_count) filter (where t.is_done), 0),
             9223372036854775807)::bigint as rows,
       min(t.created_at) as began_at,
       m.now
from (select coalesce($1::timestamptz, clock_timestamp()) as now) as m
left join lateral (
    select c.created_at, c.row_count, c.failed_at,
           c.completed_at is null and c.failed_at is null
               and coalesce(c.locked_until > m.now, false) as is_running,
           c.failed_at is null and coalesce(c.completed_at, c.last_synced_at) is not null
               and (c.locked_until is null or c.locked_until <= m.now) as is_done
    from tenure_checkpoints c
    where c.matrix_id = $2
) as t on true
group by m.now
