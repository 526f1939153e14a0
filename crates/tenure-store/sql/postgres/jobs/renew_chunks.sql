-- renew_chunks: extends leases on chunks that exist and are live.
-- Parameters: $1 now; for each lease $2 its matrix, $3 its chunk, $4 its token, $5 its holder; $6 term in
--   microseconds.
-- Returns: nth, the position of the lease in the lists; id, until and fence of each renewed chunk. until is
--   null for a chunk whose term is over (is_busy false), and for one that is live and was not renewed,
--   because another transaction has locked it (is_busy true).
-- Keeps: law 3: the whole key, token, holder and state in one predicate, checked on the row after it is
--   locked; the end never moves back and nothing else changes. It waits for no lock: a row that another
--   transaction has locked must not delay the others.
-- Relies on: the unique key, and no index on the tokens: so claims, renewals and ends of chunks change no
--   index, as long as their page has room.
with asked as materialized (
    select a.matrix_id, a.chunk_hash, a.token, a.holder, a.nth::integer as nth
    from unnest($2::text[], $3::text[], $4::text[], $5::text[])
        with ordinality as a (matrix_id, chunk_hash, token, holder, nth)
), held as materialized (
    select a.nth, t.id
    from asked a
    join tenure_checkpoints t
        on t.matrix_id = a.matrix_id
        and t.chunk_hash = a.chunk_hash
    where t.lease_token = a.token
      and t.locked_by = a.holder
      and t.completed_at is null
      and t.failed_at is null
      and t.locked_until > coalesce($1::timestamptz, statement_timestamp())
    for no key update of t skip locked
), renewed as (
    update tenure_checkpoints t
    set locked_until = greatest(
        t.locked_until, coalesce($1::timestamptz, statement_timestamp()) + $6::bigint * interval '1 microsecond')
    from held h
    where t.id = h.id
    returning h.nth, t.id, t.locked_until as until, t.fence
), others as (
    select a.nth, t.id, t.locked_until > coalesce($1::timestamptz, statement_timestamp()) as is_busy
    from asked a
    join tenure_checkpoints t
        on t.matrix_id = a.matrix_id
        and t.chunk_hash = a.chunk_hash
    where t.lease_token = a.token
      and t.locked_by = a.holder
      and t.completed_at is null
      and t.failed_at is null
      and t.locked_until is not null
      and (t.locked_until <= coalesce($1::timestamptz, statement_timestamp())
           or t.id not in (select id from renewed))
)
select nth, id, until, fence, false as is_busy from renewed
union all
select nth, id, null, null, is_busy from others
order by nth
