-- look: the current states of rows, and the outcomes that a token reported last for them. It runs after a
-- refusal, in a newer snapshot, so it also sees a first settle that ran concurrently with its repeat.
-- Parameters: $1 token, $2 holder, $3 ids.
-- Returns: per row that exists: id, state, is_mine (claimed under this token), the outcome of the last
--   settle, if it was made under this token.
-- Keeps: law 9, until the row is settled again; it only reads.
-- Relies on: the key.
select t.{key} as id, {state} as state,
       {is_claimed} and t.{token} = $1 and t.{holder} = $2 as is_mine,
       case when starts_with(t.{settled_token}, $1 || ' ')
            then substr(t.{settled_token}, length($1) + 2) end as word
from {table} t
where t.{key} = any ($3::bigint[])
