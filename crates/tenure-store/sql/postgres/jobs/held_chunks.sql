-- held_chunks: chunks that someone has in hand or left there, those first whose term ends or ended first.
-- Parameters: $1 now, $2 matrix, or null for all whose youngest job has not ended or that have no job,
--   $3 only those whose term has been over for this many microseconds, or null for all, $4 limit.
-- Returns: per chunk: chunk_hash, locked_until, locked_by, claimed_at, fence, completed_at, failed_at,
--   row_count, last_synced_at, cursor, error_message; and now; and matrix_id.
-- Keeps: nothing; it only reads.
-- Relies on: the partial index of the chunks in hand, which are few; the index on the jobs' matrix.
select t.chunk_hash, t.locked_until, t.locked_by, t.claimed_at, t.fence, t.completed_at, t.failed_at,
       t.row_count, t.last_synced_at, t.cursor, t.error_message, m.now, t.matrix_id
from (select coalesce($1::timestamptz, clock_timestamp()) as now) as m
cross join tenure_checkpoints t
where t.completed_at is null
  and t.failed_at is null
  and t.locked_until is not null
  and ($3::bigint is null or t.locked_until <= m.now - $3::bigint * interval '1 microsecond')
  and case when $2::text is null
           then coalesce((select j.completed_at is null and j.failed_at is null
                          from tenure_jobs j
                          where j.matrix_id = t.matrix_id
                          order by j.matrix_id desc, j.id desc
                          limit 1), true)
           else t.matrix_id = $2 end
order by t.locked_until, t.id
limit $4::bigint
