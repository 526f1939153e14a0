//! Invariants of the work lease tables in one snapshot: a line per violation.

use sqlx::PgPool;

/// This query must return no row at any time, with any number of writers.
const FAULTS: &str = "
    select 'domain ' || r.domain || ' says that ' || r.backlog_length || ' wait, but '
        || n.waiting || ' do'
    from tenure_reservations r
    cross join lateral (
        select count(*) as waiting from tenure_reservation_backlog b where b.reservation = r.number
    ) n
    where n.waiting <> r.backlog_length
    union all
    select 'offset ' || r.current_offset || ' of ' || r.domain || ' is in flight and waits'
    from tenure_reservations r
    join tenure_reservation_backlog b
        on b.reservation = r.number and b.log_offset = r.current_offset
    union all
    select 'offset ' || r.current_offset || ' of ' || r.domain || ' is in flight and ' || o.kind
    from tenure_reservations r
    join tenure_offsets o
        on o.reservation = r.number and r.current_offset between o.first_offset and o.last_offset
    union all
    select 'offset ' || b.log_offset || ' waits and is ' || o.kind
    from tenure_reservation_backlog b
    join tenure_offsets o
        on o.reservation = b.reservation and b.log_offset between o.first_offset and o.last_offset
    union all
    select 'ranges of ' || reservation || ' overlap or touch at ' || last_offset
    from (
        select reservation, kind, last_offset,
               lead(first_offset) over by_domain as next_offset,
               lead(kind) over by_domain as next_kind
        from tenure_offsets
        window by_domain as (partition by reservation order by last_offset)
    ) as o
    where next_offset <= last_offset or (next_offset = last_offset + 1 and next_kind = kind)
    union all
    select 'a range of no domain: ' || reservation from tenure_offsets o
    where not exists (select from tenure_reservations r where r.number = o.reservation)
    union all
    select 'a backlog of no domain: ' || reservation from tenure_reservation_backlog b
    where not exists (select from tenure_reservations r where r.number = b.reservation)
    union all
    select 'a token is given out twice: in ' || min(domain) || ' and ' || max(domain)
    from tenure_reservations where token is not null group by token having count(*) > 1";

pub(super) async fn faults(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(FAULTS).fetch_all(pool).await.unwrap()
}
