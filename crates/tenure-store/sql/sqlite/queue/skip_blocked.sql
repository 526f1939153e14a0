-- skip_blocked: records the operator's note on a dead head that is skipped. The statements of settle
-- continue the key.
-- Parameters: :id; :note; :before, the separator between note and last error; :most, the maximum number of
--   characters of the new last error.
-- Returns: nothing.
-- Keeps: law 4: the item stays dead.
-- Relies on: the primary key of tenure_setbacks; a dead item was held once, so it has a row there.

-- statement: skip_blocked
update tenure_setbacks
set last_error = substr(:note || coalesce(:before || last_error, ''), 1, :most)
where id = :id;
