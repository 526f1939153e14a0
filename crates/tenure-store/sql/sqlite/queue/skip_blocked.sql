-- skip_blocked: writes down who goes on without the dead head that blocks a domain. The domain goes on by
--   the statements of settle.
-- Parameters: :id; :note, what is written before its last error; :before, what stands between the two;
--   :most, how many characters are kept.
-- Returns: nothing.
-- Keeps: law 4: the dead one stays dead.
-- Relies on: the primary key of tenure_setbacks; what is dead was held once, and has a row there.

-- statement: skip_blocked
update tenure_setbacks
set last_error = substr(:note || coalesce(:before || last_error, ''), 1, :most)
where id = :id;
