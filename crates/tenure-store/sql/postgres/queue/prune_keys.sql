-- prune_keys: deletes keys that have been idle for long, and the lock rows of strict producers.
-- Parameters: $1 now, $2 age in microseconds, $3 limit.
-- Returns: the number of keys.
-- Keeps: law 1: a locked row is skipped, and a missing key is created again at its next arrival. A settle
--   never deletes keys: a promotion with an older snapshot could miss the row.
-- Relies on: tenure_keys and tenure_strict_keys are read whole, at most once per round of the pruner.
with idle as (
    delete from tenure_keys
    where ctid = any (array(
        select ctid
        from tenure_keys
        where head is null and not is_paused
          and state_since < coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 us'
        limit $3
        for update skip locked))
    returning 1
), free as (
    delete from tenure_strict_keys
    where ctid = any (array(select ctid from tenure_strict_keys limit $3 for update skip locked))
)
select count(*) from idle
