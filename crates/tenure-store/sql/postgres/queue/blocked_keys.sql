-- blocked_keys: keys that a dead head blocks, in the order of their hashes.
-- Parameters: $1 ordering key to continue after (null: from the first), $2 limit.
-- Returns: ordering key, head.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_keys_blocked.
select ordering_key, head
from tenure_keys
where is_blocked
  and key_hash > coalesce(tenure_key_hash($1::text), -9223372036854775808)
order by key_hash
limit $2
