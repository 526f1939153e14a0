-- row_complete: the settle of the row loop: one UPDATE, guarded by the token.
-- Parameters: ?1 ids as a JSON array, ?2 token, ?3 now.
-- Returns: nothing.
-- Keeps: only the token of the claim ends it, as in a hand-written outbox.
-- Relies on: the primary key.
update bench_row
set status = 'PUBLISHED', published_at = ?3, claimed_at = null, claimed_by = null, lock_token = null,
    locked_until = null
where id in (select value from json_each(?1)) and lock_token = ?2 and status = 'CLAIMED'
