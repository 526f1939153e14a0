-- renew: moves the end of live leases forward, never back.
-- Parameters: :tokens as a JSON array, :now, :until.
-- Returns: kept: token, fence, locked_until and ids of each renewed lease; lapsed: the tokens of leases
--   that still exist but have lapsed. A token in neither list has no lease.
-- Keeps: law 3; live means now < until.
-- Relies on: the primary key of tenure_leases.

-- statement: kept
update tenure_leases
set locked_until = max(locked_until, :until)
where token in (select value from json_each(:tokens))
    and locked_until > :now
returning token, fence, locked_until, ids;

-- statement: lapsed
select token
from tenure_leases
where token in (select value from json_each(:tokens))
    and locked_until <= :now;
