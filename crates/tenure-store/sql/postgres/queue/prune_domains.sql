-- prune_domains: forgets domains that have been idle for long, and what strict producers have waited at.
-- Parameters: $1 now, $2 age in us, $3 limit.
-- Returns: how many domains.
-- Keeps: law 1: what somebody has in hand is skipped, and a domain that is not there is made anew when it
--   is rung for. A settle never does this: a placement with an older snapshot could miss the row.
-- Relies on: tenure_domains and tenure_strict are read whole, at most once per round of the pruner.
with idle as (
    delete from tenure_domains
    where ctid = any (array(
        select ctid
        from tenure_domains
        where head is null and not paused
          and since < coalesce($1::timestamptz, now()) - $2::bigint * interval '1 us'
        limit $3
        for update skip locked))
    returning 1
), free as (
    delete from tenure_strict
    where ctid = any (array(select ctid from tenure_strict limit $3 for update skip locked))
)
select count(*) from idle
