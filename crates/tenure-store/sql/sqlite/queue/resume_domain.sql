-- resume_domain: lets a domain go on: the first of its backlog is its head, by the statements of
--   settle, unless it has one; that one has been it since the pause began, at least.
-- Parameters: :key, :now.
-- Returns: whether it has a head; no row: it is not paused.
-- Keeps: laws 1, 6, 7: in one transaction, and there is one writer.
-- Relies on: the primary key of tenure_domains.

-- statement: paused
select head is not null as has_head
from tenure_domains
where ordering_key = :key
    and paused;

-- statement: resumed
update tenure_domains
set
    paused = 0,
    since = iif(head is null, :now, since)
where ordering_key = :key;
