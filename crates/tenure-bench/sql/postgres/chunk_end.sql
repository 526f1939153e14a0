-- chunk_end: the other half: one UPDATE, by the whole key, which spares it a walk through the table.
-- Parameters: $1 matrix, $2 chunk, $3 row_count.
-- Returns: nothing.
-- Keeps: what a hand-written table of checkpoints keeps: anyone may end it.
-- Relies on: the unique key.
update bench_checkpoint
set locked_until = null, locked_by = null, last_synced_at = now(), row_count = $3
where matrix_id = $1 and chunk_hash = $2
