-- enqueue_strict: waits for every other producer that has said strict for one of these keys and whose
-- transaction is still open. Run before the events draw their ids.
-- Parameters: $1 ordering keys.
-- Returns: nothing.
-- Keeps: law 7, for producers that overlap. Sorted, so that two cannot wait for each other crosswise.
-- Relies on: tenure_strict_pkey.
insert into tenure_strict as s (domain)
select distinct tenure_domain(k.ordering_key)
from unnest($1::text[]) as k(ordering_key)
order by 1
on conflict (domain) do update set domain = excluded.domain
