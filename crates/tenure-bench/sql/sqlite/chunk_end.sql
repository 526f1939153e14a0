-- chunk_end: the end of a hand-written claim: one UPDATE, which finds the row by the unique key.
-- Parameters: ?1 matrix, ?2 chunk, ?3 row_count, ?4 now.
-- Returns: nothing.
-- Keeps: nothing; any program may end the hold.
-- Relies on: the unique key.
update bench_checkpoint
set locked_until = null, locked_by = null, last_synced_at = ?4, row_count = ?3
where matrix_id = ?1 and chunk_hash = ?2
