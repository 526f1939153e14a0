-- resume_domain: lets a domain go on. If nothing of it is held it is rung for, and place.sql makes its head;
-- a head that stays has been it since the pause began, at least.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: laws 1, 6, 7: under the lock of the domain's row. It makes no head itself: whoever had the lock
--   before may have put back an item that comes first, and this snapshot would not show it.
-- Relies on: tenure_domains_pkey.
with own as (
    update tenure_domains
    set paused = false, since = case when head is null then coalesce($1::timestamptz, now()) else since end
    where domain = tenure_domain($2::text) and paused
    returning domain, head, ordering_key
)
insert into tenure_arrivals (domain, ordering_key)
select domain, ordering_key
from own
where head is null
