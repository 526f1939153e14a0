-- resume_key: resumes a paused key. A key without a head gets an arrival, and promote.sql then makes its
-- first item the head; a key with a head (held, or dead and blocking) keeps the time of the pause as
-- state_since.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: laws 1, 6, 7: under the lock of the key's row. It promotes no head itself: the previous holder of
--   the lock may have returned an item that comes first, and this snapshot would not show it.
-- Relies on: tenure_keys_pkey.
with own as (
    update tenure_keys
    set is_paused = false,
        state_since = case when head is null then coalesce($1::timestamptz, statement_timestamp()) else state_since end
    where key_hash = tenure_key_hash($2::text) and is_paused
    returning key_hash, head, ordering_key
)
insert into tenure_arrivals (key_hash, ordering_key)
select key_hash, ordering_key
from own
where head is null
