-- note: writes down something of a job, if the hold on it is still this one.
-- Parameters: $1 now, $2 id, $3 token, $4 holder, $5 cursor, $6 chunks_total, $7 result (each null leaves
--   what is there), $8 whether a lapsed lease is refused.
-- Returns: one row: is_noted; and, as it stood before, whether there is such a job (is_there), its
--   locked_until, completed_at, failed_at, whether the hold on it was this one (is_mine); and now.
-- Keeps: law 3: key, token, holder and state in one predicate. It locks the row until the commit, so
--   whoever claims the job next sees what was written, or waits for nothing and finds it held.
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
