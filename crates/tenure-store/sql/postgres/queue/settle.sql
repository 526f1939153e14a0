-- settle: removes named ids from a lease, each with its outcome; the rest stay held or all get one outcome.
-- The items of a key are settled in order: this repeats the rule settle_run of tenure-core.
-- Parameters: $1 now, $2 token, $3 done ids, $4 retry ids, $5 their delays in microseconds, $6 their
--   errors, $7 dead ids, $8 their reasons, $9 their errors, $10 release ids, $11 their delays in
--   microseconds, $12 the outcome for the ids of the lease that are not named (null keeps them held), $13
--   whether a lapsed lease is refused, $14 whether a dead item blocks its key, $15 the version of the
--   endpoint rules under which there are no deliveries (null: any). No id is named twice.
-- Returns: one row: is_late, the number of unnamed ids that were ended, the named ids that were not
--   held or whose lapsed lease is refused, the named ids behind an unsettled one of their key,
--   whether a key has a new head, whether the rules have changed (then nothing was settled).
-- Keeps: laws 3, 4, 6, 7: it changes only the lease with this token, and locks it first. Ids are combined
--   by grouping, never by joining two lists: the planner expects one row of each and would compare every id
--   with every other. A key that is left without a head gets an arrival: its backlog may have an event that
--   this snapshot cannot see. A paused key gets no head.
-- Relies on: tenure_leases_pkey, tenure_setbacks_pkey, tenure_events_pkey, tenure_keys_pkey,
--   tenure_backlog_pkey, tenure_endpoints_version_pkey.
with held as materialized (
    select token, holder, fence, claimed_at, ids, key_hashes,
           locked_until <= coalesce($1::timestamptz, statement_timestamp()) as is_late
    from tenure_leases
    where token = $2
    for update
), open as materialized (
    select *
    from held
    where not (is_late and $13::boolean)
      and ($15::bigint is null
           or $15::bigint = (select v.rules_version from tenure_endpoints_version v where v.singleton = 1))
), said as materialized (
    select id, bool_or(is_held) as is_held, max(key_hash) as key_hash, max(outcome) as outcome,
           max(delay) as delay, max(reason) as reason, max(error) as error
    from (
        select i.id, true as is_held, i.key_hash, null::text as outcome, null::bigint as delay,
               null::text as reason, null::text as error
        from open cross join unnest(open.ids, open.key_hashes) as i(id, key_hash)
        union all
        select id, false, null, 'done', null, null, null
        from unnest($3::bigint[]) as u(id)
        union all
        select id, false, null, 'retry', delay, null, error
        from unnest($4::bigint[], $5::bigint[], $6::text[]) as u(id, delay, error)
        union all
        select id, false, null, 'dead', null, reason, error
        from unnest($7::bigint[], $8::text[], $9::text[]) as u(id, reason, error)
        union all
        select id, false, null, 'release', nullif(delay, 0), null, null
        from unnest($10::bigint[], $11::bigint[]) as u(id, delay)
    ) as word
    group by id
), draft as materialized (
    select r.*,
           coalesce(id < cut, true)
               and bool_or(id = stop and outcome is null) over (partition by key_hash) as stays_held
    from (
        select id, key_hash, coalesce(outcome, $12::text) as outcome, delay, reason, error,
               outcome is null as is_unnamed,
               min(id) filter (
                   where coalesce(outcome, $12::text) is null
                      or coalesce(outcome, $12::text) in ('retry', 'release')
                      or ($14::boolean and outcome = 'dead')) over (partition by key_hash) as stop,
               min(id) filter (
                   where coalesce(outcome, $12::text) = 'release') over (partition by key_hash) as cut
        from said
        where is_held and key_hash is not null
    ) as r
), own as materialized (
    select k.key_hash, k.is_paused, k.ordering_key, r.is_open
    from (
        select key_hash, bool_or(stop is null) as is_open
        from draft
        where stop is null or (id = stop and outcome is not null)
        group by key_hash
        order by key_hash
    ) as r
    cross join lateral (
        select k.key_hash, k.is_paused, k.ordering_key
        from tenure_keys k
        where k.key_hash = r.key_hash
        for update
    ) k
), run as materialized (
    select draft.*,
           id = stop and outcome in ('retry', 'release')
               and (key_hash in (select key_hash from own where is_paused)) is true as is_held_back
    from draft
), item as materialized (
    select id, key_hash, coalesce(outcome, $12::text) as outcome, delay, reason, error,
           outcome is null as is_unnamed, false as is_behind, false as is_early
    from said
    where is_held and key_hash is null
    union all
    select id, key_hash, outcome, delay, reason, error, is_unnamed, coalesce(is_held_back, false), false
    from run
    where stop is null or id <= stop
    union all
    select id, key_hash, case when outcome = 'release' or not stays_held then 'release' end,
           case when outcome = 'release' then delay end, null, null,
           is_unnamed and outcome = 'release', outcome = 'release' or not stays_held,
           coalesce(outcome <> 'release', false) and not is_unnamed
    from run
    where id > stop
), rest as materialized (
    select count(*) as n, array_agg(id order by id) as ids,
           case when bool_or(key_hash is not null) then array_agg(key_hash order by id) end as key_hashes
    from item
    where outcome is null
), emptied as (
    delete from tenure_leases l
    using open, rest
    where l.token = open.token and rest.n = 0
), kept as (
    update tenure_leases l
    set ids = rest.ids, key_hashes = rest.key_hashes
    from open, rest
    where l.token = open.token and rest.n > 0 and rest.n < cardinality(open.ids)
), journal as (
    insert into tenure_settled
        (token, outcome, settled_at, claimed_at, holder, fence, first_id, last_id, ids)
    select open.token, item.outcome, coalesce($1::timestamptz, statement_timestamp()), open.claimed_at, open.holder,
           open.fence, min(item.id), max(item.id), array_agg(item.id order by item.id)
    from open, item
    where item.outcome is not null
    group by open.token, open.claimed_at, open.holder, open.fence, item.outcome
), setback as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error, available_at)
    select id, 1, (outcome = 'retry')::int, error,
           coalesce($1::timestamptz, statement_timestamp()) + delay * interval '1 us'
    from item
    where outcome in ('retry', 'release') and not is_behind
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + excluded.failures,
        last_error = coalesce(excluded.last_error, s.last_error),
        available_at = coalesce(excluded.available_at, s.available_at)
    returning id, lane, available_at
), back as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select coalesce(s.lane, e.lane), coalesce(s.available_at, e.available_at), e.id,
           tenure_key_hash(e.ordering_key)
    from setback s
    cross join lateral (
        select id, lane, available_at, ordering_key from tenure_events e where e.id = s.id offset 0
    ) e
), setback_behind as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error, available_at)
    select id, 1, (outcome = 'retry')::int, error,
           coalesce($1::timestamptz, statement_timestamp()) + delay * interval '1 us'
    from item
    where is_behind
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + excluded.failures,
        last_error = coalesce(excluded.last_error, s.last_error),
        available_at = coalesce(excluded.available_at, s.available_at)
    returning id, lane, available_at, turn
), behind as (
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(e.ordering_key), coalesce(s.turn, e.id), e.id, coalesce(s.lane, e.lane),
           coalesce(s.available_at, e.available_at)
    from setback_behind s
    cross join lateral (
        select id, lane, available_at, ordering_key from tenure_events e where e.id = s.id offset 0
    ) e
), last_setback as (
    insert into tenure_setbacks as s (id, attempts, failures, last_error)
    select id, 1, 1, error
    from item
    where outcome = 'dead'
    on conflict (id) do update set
        attempts = s.attempts + 1,
        failures = s.failures + 1,
        last_error = excluded.last_error
), dead as (
    insert into tenure_dead (id, dead_at, reason, last_error)
    select id, coalesce($1::timestamptz, statement_timestamp()), reason, error
    from item
    where outcome = 'dead'
), promoted as (
    delete from tenure_backlog
    where ctid = any (array(
        select b.row_id
        from own o
        cross join lateral (
            select ctid as row_id
            from tenure_backlog b
            where b.key_hash = o.key_hash and o.is_open and not o.is_paused
            order by b.turn
            limit 1
        ) b))
    returning key_hash, id, lane, available_at
), head as (
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, key_hash
    from promoted
), standing as (
    update tenure_keys k
    set head = n.head, is_blocked = n.is_blocked,
        state_since = case when k.is_paused then k.state_since else coalesce($1::timestamptz, statement_timestamp()) end
    from (
        select key_hash, max(head) as head, bool_or(is_blocked) as is_blocked
        from (
            select key_hash, null::bigint as head, false as is_blocked from own
            union all
            select key_hash, id, false from promoted
            union all
            select key_hash, id, outcome = 'dead'
            from run
            where id = stop and outcome is not null and not is_held_back
        ) as s
        group by key_hash
    ) as n
    where k.key_hash = n.key_hash and (k.head is distinct from n.head or n.is_blocked)
), arrived as (
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key
    from own
    where is_open and not is_paused and (key_hash in (select key_hash from promoted)) is not true
), answer as materialized (
    select coalesce((select is_late from open), false)
               and exists (select from item where outcome is not null) as is_late,
           (select count(*) from item where is_unnamed and outcome = $12::text) as rest,
           (select array_agg(id) from said where not is_held) as refused,
           (select array_agg(id) from item where is_early) as early,
           exists (select from promoted) as has_promoted,
           coalesce($15::bigint <> (select v.rules_version
                                     from tenure_endpoints_version v
                                     where v.singleton = 1), false)
               as is_stale
)
select is_late, rest, refused, early, has_promoted, is_stale
from answer
