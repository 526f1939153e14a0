//! What the tables themselves say of the places of all items and the heads of all domains, in one
//! snapshot. True at any moment, whatever is going on.

use sqlx::PgConnection;

/// Returns a line per fault, and should return none.
pub(crate) const FAULTS: &str = "
    with event as materialized (
        select e.id, tenure_domain(e.ordering_key) as domain, coalesce(s.turn, e.id) as turn,
               coalesce(s.lane, e.lane) as lane, s.replayed_at,
               coalesce(s.available_at, e.available_at) as available_at
        from tenure_events e left join tenure_setbacks s on s.id = e.id
    ), held as materialized (
        select l.token, l.holder, i.id, i.domain
        from tenure_leases l cross join unnest(l.ids, l.domains) as i(id, domain)
    ), place as materialized (
        select id, 'ready' as place, domain from tenure_ready
        union all
        select id, 'the backlog', domain from tenure_backlog
        union all
        select id, 'the lease of ' || holder, domain from held
        union all
        select id, 'dead', null from tenure_dead
    ), turn as materialized (
        select domain, 'ready' as whose from tenure_ready where domain is not null
        union all
        select distinct domain, 'the lease of ' || token from held where domain is not null
        union all
        select domain, 'who blocks it' from tenure_domains where blocked
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
    select 'item ' || e.id || ' is in ' || p.place || ' of another domain'
    from place p join event e on e.id = p.id
    where p.place <> 'dead' and p.domain is distinct from e.domain
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
    select 'domain ' || domain || ' has its turn in ' || string_agg(whose, ', ')
    from turn group by domain having count(*) > 1
    union all
    select 'domain ' || t.domain || ' has no head although something is in ' || t.whose
    from turn t left join tenure_domains d on d.domain = t.domain where d.head is null
    union all
    select 'domain ' || d.domain || ' has a head that is nowhere'
    from tenure_domains d
    where d.head is not null and not exists (select from turn t where t.domain = d.domain)
    union all
    select 'domain ' || d.domain || ' is blocked by what is not dead'
    from tenure_domains d left join tenure_dead x on x.id = d.head where d.blocked and x.id is null
    union all
    select 'domain ' || d.domain || ' has another head than the one in ready'
    from tenure_domains d join tenure_ready r on r.domain = d.domain
    where d.head is distinct from r.id
    union all
    select 'domain ' || d.domain || ' is paused and can be claimed'
    from tenure_domains d join tenure_ready r on r.domain = d.domain where d.paused
    union all
    select distinct 'domain ' || b.domain || ' waits and nobody was rung for'
    from tenure_backlog b left join tenure_domains d on d.domain = b.domain
    where d.head is null and d.paused is not true
      and not exists (select from tenure_arrivals a where a.domain = b.domain)";

/// What is wrong in this very moment.
pub(crate) async fn faults(conn: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(FAULTS).fetch_all(conn).await.unwrap()
}
