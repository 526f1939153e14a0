-- blocked_keys: keys that a dead head blocks, by name.
-- Parameters: :after, the ordering key to continue after (empty: from the first); :limit.
-- Returns: ordering key, head.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_keys_blocked.

-- statement: blocked_keys
select ordering_key, head
from tenure_keys indexed by tenure_keys_blocked
where is_blocked
    and ordering_key > :after
order by ordering_key
limit :limit;
