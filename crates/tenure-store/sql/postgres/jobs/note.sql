-- note: saves the progress of a job, if the caller still holds it.
-- Parameters: $1 now, $2 id, $3 token, $4 holder, $5 cursor, $6 chunks_total, $7 result (a null keeps the
--   stored value), $8 whether a lapsed lease is refused.
-- Returns: one row: is_noted; and, as before the statement, whether the job exists (is_there), its
--   locked_until, completed_at, failed_at, whether the caller held it (is_mine); and now.
-- Keeps: law 3: key, token, holder and state in one predicate. The row stays locked until the commit, so
--   the next claim of the job sees the saved values, or skips the row without waiting.
-- Relies on: the key.
with moment as materialized (
    select coalesce($1::timestamptz, clock_timestamp()) as now
), noted as (
    update tenure_jobs t
    set cursor = coalesce($5::text, t.cursor),
        chunks_total = coalesce($6::bigint, t.chunks_total),
        result = coalesce($7::text::json, t.result)
    from moment m
    where t.id = $2::bigint
      and t.lease_token = $3::text
      and t.locked_by = $4::text
      and t.completed_at is null
      and t.failed_at is null
      and t.locked_until is not null
      and (not $8::boolean or t.locked_until > m.now)
    returning t.id
)
select exists (select from noted) as is_noted, t.id is not null as is_there, t.locked_until,
       t.completed_at, t.failed_at,
       coalesce(t.lease_token = $3 and t.locked_by = $4, false) as is_mine, m.now
from moment m
left join tenure_jobs t on t.id = $2
