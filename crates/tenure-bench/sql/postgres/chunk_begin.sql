-- chunk_begin: a hand-written claim of a checkpoint that is free, or whose hold has lapsed.
-- Parameters: $1 matrix, $2 chunk, $3 holder.
-- Returns: the claimed row.
-- Keeps: one holder at a time, as a hand-written table does: without token and fence.
-- Relies on: the unique key.
update bench_checkpoint
set locked_until = now() + interval '2 minutes', locked_by = $3
where matrix_id = $1 and chunk_hash = $2 and (locked_until is null or locked_until <= now())
returning *
