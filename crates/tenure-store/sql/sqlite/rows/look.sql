-- look: the current states of rows, and the outcomes that a token reported last for them: the
-- reasons for refusals.
-- Parameters: :token, :holder, :ids as a JSON array.
-- Returns: per row that exists: id, state, is_mine (claimed under this token), the outcome of the last
--   settle, if it was made under this token.
-- Keeps: law 9, until the row is settled again; it only reads.
-- Relies on: the key.
-- statement: look
select t.{key}, {state},
       ifnull({is_claimed} and t.{token} = :token and t.{holder} = :holder, false),
       case when substr(t.{settled_token}, 1, length(:token) + 1) = :token || ' '
            then substr(t.{settled_token}, length(:token) + 2) end
from {table} t
where t.{key} in (select value from json_each(:ids))
