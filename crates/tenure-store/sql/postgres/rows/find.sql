-- find: all facts of rows except the tokens, which are secrets of their holders.
-- Parameters: $1 ids.
-- Returns: per row that exists: id, state, content, the counters, created_at, available_at, holder, fence,
--   claimed_at, until, last_error, done_at, dead_at.
-- Keeps: nothing; it only reads.
-- Relies on: the key.
select t.{key} as id, {state} as state,
       (select json_object_agg(part.key, part.value)::text
        from json_each(to_json(t)) as part
        where part.key not in ('{token_name}', '{settled_token_name}')) as content,
       t.{attempts} as attempts, t.{failures} as failures, t.{crashes} as crashes,
       t.{generation} as generation, t.{created_at} as created_at,
       t.{available_at} as available_at, t.{holder} as holder, t.{fence} as fence,
       t.{claimed_at} as claimed_at, t.{until} as until, t.{last_error} as last_error,
       t.{done_at} as done_at, t.{dead_at} as dead_at
from {table} t
where t.{key} = any ($1::bigint[])
