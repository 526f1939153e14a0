-- look: the current states of items, and the outcomes that a token reported for them. It runs after a
-- refusal, in a newer snapshot, so it also sees a first settle that ran concurrently with its repeat.
-- Parameters: $1 token, $2 ids.
-- Returns: per id: is_known, is_claimed, is_mine (claimed under this token), is_waiting, is_dead, and the
--   outcome that the token reported last for it.
-- Keeps: nothing; it only reads.
-- Relies on: tenure_events_pkey, tenure_setbacks_pkey, tenure_ready_pkey, tenure_backlog_pkey,
--   tenure_dead_pkey, tenure_settled_token. Leases are few and are scanned.
select id, bool_or(is_known) as is_known, bool_or(is_claimed) as is_claimed,
       bool_or(is_mine) as is_mine, bool_or(is_waiting) as is_waiting, bool_or(is_dead) as is_dead,
       (array_agg(word order by settled_at desc) filter (where word is not null))[1] as word
from (
    select a.id, true as is_asked, e.id is not null as is_known, false as is_claimed,
           false as is_mine, r.id is not null or b.id is not null as is_waiting, d.id is not null as is_dead,
           null::text as word, null::timestamptz as settled_at
    from unnest($2::bigint[]) as a(id)
    left join lateral (
        select e.id, e.lane, e.available_at, e.ordering_key
        from tenure_events e
        where e.id = a.id
        offset 0
    ) e on true
    left join lateral (
        select s.lane, s.available_at, s.turn from tenure_setbacks s where s.id = a.id offset 0
    ) s on true
    left join lateral (
        select r.id
        from tenure_ready r
        where r.lane = coalesce(s.lane, e.lane)
          and r.available_at = coalesce(s.available_at, e.available_at)
          and r.id = a.id
        offset 0
    ) r on true
    left join lateral (
        select b.id
        from tenure_backlog b
        where b.key_hash = tenure_key_hash(e.ordering_key) and b.turn = coalesce(s.turn, a.id) and b.id = a.id
        offset 0
    ) b on true
    left join lateral (select d.id from tenure_dead d where d.id = a.id offset 0) d on true
    union all
    select i.id, false, false, true, l.token = $1, false, false, null, null
    from tenure_leases l cross join unnest(l.ids) as i(id)
    union all
    select i.id, false, false, false, false, false, false, j.outcome, j.settled_at
    from tenure_settled j cross join unnest(j.ids) as i(id)
    where j.token = $1
) as place
group by id
having bool_or(is_asked)
