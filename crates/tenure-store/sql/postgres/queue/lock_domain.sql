-- lock_domain: locks the row of a domain, and makes it if there is none. A statement before pause_domain.sql,
-- in its transaction: that one's snapshot then shows what those have done who had the lock before.
-- Parameters: $1 now, $2 ordering key.
-- Returns: nothing.
-- Keeps: law 1: a new row has no head.
-- Relies on: tenure_domains_pkey.
insert into tenure_domains as d (domain, since, ordering_key)
values (tenure_domain($2::text), coalesce($1::timestamptz, now()), $2::text)
on conflict (domain) do update set ordering_key = d.ordering_key
