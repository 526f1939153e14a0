-- place_new: makes sure of the rows of the domains that were rung for. A statement before place.sql, since
-- a row that a statement makes cannot be changed by it.
-- Parameters: $1 now, $2 limit.
-- Returns: nothing.
-- Keeps: law 1: a new row has no head. Sorted, so that two cannot wait for each other crosswise.
-- Relies on: tenure_arrivals_pkey, from the oldest; tenure_domains_pkey.
insert into tenure_domains (domain, since, ordering_key)
select k.domain, coalesce($1::timestamptz, now()), k.ordering_key
from (
    select domain, min(ordering_key) as ordering_key
    from (
        select domain, ordering_key
        from tenure_arrivals
        order by arrival
        limit $2
    ) as few
    group by domain
) as k
where (select d.domain from tenure_domains d where d.domain = k.domain) is null
order by k.domain
on conflict (domain) do nothing
