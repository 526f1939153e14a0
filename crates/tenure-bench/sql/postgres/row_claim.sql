-- row_claim: the claim of the row loop: one table, one UPDATE.
-- Parameters: $1 limit, $2 token, $3 holder.
-- Returns: the claimed rows.
-- Keeps: one holder at a time, as a hand-written outbox does.
-- Relies on: bench_row_pending.
with claimable as materialized (
    select id
    from bench_row
    where status = 'PENDING' and available_at <= now()
    order by available_at, id
    limit $1
    for update skip locked
)
update bench_row t
set status = 'CLAIMED', claimed_at = now(), claimed_by = $3, lock_token = $2,
    locked_until = now() + interval '30 s'
from claimable c
where t.id = c.id
returning t.id, t.event_id, t.topic, t.payload, t.headers, t.created_at, t.available_at, t.attempts
