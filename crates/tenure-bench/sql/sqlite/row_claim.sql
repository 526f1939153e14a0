-- row_claim: the claim of the row loop: one table, one UPDATE.
-- Parameters: ?1 limit, ?2 token, ?3 holder, ?4 now.
-- Returns: the claimed rows.
-- Keeps: one holder at a time, as a hand-written outbox does.
-- Relies on: bench_row_pending.
update bench_row
set status = 'CLAIMED', claimed_at = ?4, claimed_by = ?3, lock_token = ?2,
    locked_until = ?4 + 30000000
where id in (
    select id
    from bench_row
    where status = 'PENDING' and available_at <= ?4
    order by available_at, id
    limit ?1
)
returning id, topic, payload, headers, created_at, available_at, attempts
