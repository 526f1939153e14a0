-- row_complete: the settle of the row loop: one UPDATE, guarded by the token.
-- Parameters: $1 ids, $2 token.
-- Returns: nothing.
-- Keeps: only the token of the claim ends it, as in a hand-written outbox.
-- Relies on: the primary key.
update bench_row
set status = 'PUBLISHED', published_at = now(), claimed_at = null, claimed_by = null,
    lock_token = null, locked_until = null
where id = any ($1::bigint[]) and lock_token = $2 and status = 'CLAIMED'
