-- pause_domain: holds a domain back. Its head goes from ready into the backlog, by the statements of
--   bury and settle; what is held goes on.
-- Parameters: :key, :now.
-- Returns: paused: the head, of a domain that was not paused before.
-- Keeps: laws 6, 7: in one transaction, and there is one writer.
-- Relies on: the primary key of tenure_domains.

-- statement: paused
insert into tenure_domains as old (ordering_key, since, paused)
values (:key, :now, 1)
on conflict (ordering_key) do update set
    paused = 1,
    since = excluded.since
    where not old.paused
returning head;

-- statement: held_back
update tenure_domains
set head = null
where ordering_key = :key;
