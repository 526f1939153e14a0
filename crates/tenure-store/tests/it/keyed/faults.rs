//! Invariants of the places of all items and of the heads of all keys, read from the tables in one
//! snapshot. They hold at any time.

use sqlx::PgConnection;

/// This query returns a line per violation.
pub(crate) const FAULTS: &str = "
    with event as materialized (
        select e.id, tenure_key_hash(e.ordering_key) as key_hash, coalesce(s.turn, e.id) as turn,
               coalesce(s.lane, e.lane) as lane, s.replayed_at,
               coalesce(s.available_at, e.available_at) as available_at
        from tenure_events e left join tenure_setbacks s on s.id = e.id
    ), held as materialized (
        select l.token, l.holder, i.id, i.key_hash
        from tenure_leases l cross join unnest(l.ids, l.key_hashes) as i(id, key_hash)
    ), place as materialized (
        select id, 'ready' as place, key_hash from tenure_ready
        union all
        select id, 'the backlog', key_hash from tenure_backlog
        union all
        select id, 'the lease of ' || holder, key_hash from held
        union all
        select id, 'dead', null from tenure_dead
    ), turn as materialized (
        select key_hash, 'ready' as whose from tenure_ready where key_hash is not null
        union all
        select distinct key_hash, 'the lease of ' || token from held where key_hash is not null
        union all
        select key_hash, 'who blocks it' from tenure_keys where is_blocked
    ), done as materialized (
        select i.id, max(j.settled_at) as settled_at
        from tenure_settled j cross join unnest(j.ids) as i(id)
        where j.outcome = 'done' group by i.id
    )
    select 'item ' || id || ' is in ' || string_agg(place, ', ')
    from place group by id having count(*) > 1
    union all
    select 'item ' || p.id || ' in ' || p.place || ' is no event'
    from place p left join event e on e.id = p.id where e.id is null
    union all
    select 'item ' || e.id || ' is in ' || p.place || ' of another key'
    from place p join event e on e.id = p.id
    where p.place <> 'dead' and p.key_hash is distinct from e.key_hash
    union all
    select 'item ' || e.id || ' is not where it is looked for in ready'
    from tenure_ready r join event e on e.id = r.id
    where (r.lane, r.available_at) is distinct from (e.lane, e.available_at)
    union all
    select 'item ' || e.id || ' is not where it is looked for in the backlog'
    from tenure_backlog b join event e on e.id = b.id
    where (b.turn, b.lane, b.available_at) is distinct from (e.turn, e.lane, e.available_at)
    union all
    select 'item ' || e.id || ' is lost'
    from event e
    left join place p on p.id = e.id
    left join done d on d.id = e.id and d.settled_at >= coalesce(e.replayed_at, d.settled_at)
    where p.id is null and d.id is null
    union all
    select 'key ' || key_hash || ' has its turn in ' || string_agg(whose, ', ')
    from turn group by key_hash having count(*) > 1
    union all
    select 'key ' || t.key_hash || ' has no head although something is in ' || t.whose
    from turn t left join tenure_keys k on k.key_hash = t.key_hash where k.head is null
    union all
    select 'key ' || k.key_hash || ' has a head that is nowhere'
    from tenure_keys k
    where k.head is not null and not exists (select from turn t where t.key_hash = k.key_hash)
    union all
    select 'key ' || k.key_hash || ' is blocked by what is not dead'
    from tenure_keys k left join tenure_dead x on x.id = k.head where k.is_blocked and x.id is null
    union all
    select 'key ' || k.key_hash || ' has another head than the one in ready'
    from tenure_keys k join tenure_ready r on r.key_hash = k.key_hash
    where k.head is distinct from r.id
    union all
    select 'key ' || k.key_hash || ' is paused and can be claimed'
    from tenure_keys k join tenure_ready r on r.key_hash = k.key_hash where k.is_paused
    union all
    select distinct 'key ' || b.key_hash || ' waits and has no arrival'
    from tenure_backlog b left join tenure_keys k on k.key_hash = b.key_hash
    where k.head is null and k.is_paused is not true
      and not exists (select from tenure_arrivals a where a.key_hash = b.key_hash)";

/// Returns the current violations.
pub(crate) async fn faults(conn: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(FAULTS).fetch_all(conn).await.unwrap()
}
