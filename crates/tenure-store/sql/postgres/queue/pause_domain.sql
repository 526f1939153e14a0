-- pause_domain: holds a domain back. Its head goes from ready into the backlog; what is held goes on.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: laws 6, 7: under the lock of the domain's row, which lock_domain.sql has taken. Without it a head
--   that somebody makes meanwhile would not be seen, and would be claimed in spite of the pause.
-- Relies on: tenure_domains_pkey, tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey.
with own as materialized (
    select d.domain, d.head, d.paused
    from tenure_domains d
    where d.domain = tenure_domain($2::text)
    for update
), waiting as (
    delete from tenure_ready
    where ctid = any (array(
        select r.ctid
        from own o
        join tenure_events e on e.id = o.head
        left join tenure_setbacks s on s.id = e.id
        join tenure_ready r
            on r.lane = coalesce(s.lane, e.lane)
            and r.available_at = coalesce(s.available_at, e.available_at)
            and r.id = e.id))
    returning id, domain, lane, available_at
), behind as (
    insert into tenure_backlog (domain, turn, id, lane, available_at)
    select w.domain, coalesce(s.turn, w.id), w.id, w.lane, w.available_at
    from waiting w
    left join tenure_setbacks s on s.id = w.id
)
update tenure_domains d
set paused = true,
    head = case when exists (select from waiting) then null else o.head end,
    since = case when o.paused then d.since else coalesce($1::timestamptz, now()) end
from own o
where d.domain = o.domain
