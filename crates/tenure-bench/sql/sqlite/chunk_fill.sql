-- chunk_fill: inserts checkpoints for the bare loop.
-- Parameters: ?1 number of rows.
-- Returns: nothing.
-- Keeps: nothing.
-- Relies on: nothing.
with recursive n(i) as (
    select 0
    union all
    select i + 1 from n where i < ?1 - 1
)
insert into bench_checkpoint (matrix_id, chunk_hash)
select 'bench', 'chunk-' || i
from n
