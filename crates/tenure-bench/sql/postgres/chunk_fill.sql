-- chunk_fill: inserts checkpoints for the bare loop.
-- Parameters: $1 number of rows.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
insert into bench_checkpoint (matrix_id, chunk_hash)
select 'bench', 'chunk-' || n
from generate_series(0, $1::bigint - 1) as n
