-- chunk_begin: the claim of a checkpoint as it is written by hand: free, or the hold of another has lapsed.
-- Parameters: ?1 matrix, ?2 chunk, ?3 holder, ?4 now.
-- Returns: the claimed row.
-- Keeps: what a hand-written table of checkpoints keeps: neither token nor fence.
-- Relies on: the unique key.
update bench_checkpoint
set locked_until = ?4 + 120000000, locked_by = ?3
where matrix_id = ?1 and chunk_hash = ?2 and (locked_until is null or locked_until <= ?4)
returning *
