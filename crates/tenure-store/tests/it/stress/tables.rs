//! Invariants of the tables: every statement here returns a line per violation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sqlx::{Connection as _, PgConnection};
use tenure_core::ItemId;

use super::order::{End, Keys};
use crate::keyed::FAULTS;

/// A lease ends once, and a settled item is not held. These invariants and [`FAULTS`] hold at any
/// time.
const POSTGRES_QUEUE: &str = "
    with ended as (
        select s.token, s.holder, i.id from tenure_settled s, unnest(s.ids) as i(id)
    )
    select 'the hold of ' || holder || ' on ' || id || ' ended ' || count(*) || ' times'
    from ended group by token, holder, id having count(*) > 1
    union all
    select 'item ' || i.id || ' is held by ' || l.holder || ' after the end'
    from tenure_leases l, unnest(l.ids) as i(id)
    where exists (select from ended where ended.token = l.token and ended.id = i.id)";

/// Each item was settled once per generation, and is in the place that its last outcome requires.
const POSTGRES_QUEUE_QUIET: &str = "
    with ended as (
        select i.id, s.outcome, s.settled_at from tenure_settled s, unnest(s.ids) as i(id)
    )
    select 'item ' || e.id || ' was settled ' || n.times || ' times in generation '
           || coalesce(s.generation, 0)
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    cross join lateral (
        select count(*) as times from ended
        where ended.id = e.id and ended.outcome in ('done', 'dead', 'buried')
    ) n
    where n.times <> coalesce(s.generation, 0) + 1
    union all
    select 'item ' || id || ' waits' from tenure_ready
    union all
    select 'a lease of ' || holder || ' is left' from tenure_leases
    union all
    select 'there were ' || deadlocks || ' deadlocks' from pg_stat_database
    where datname = current_database() and deadlocks > 0
    union all
    select 'the view shows ' || count(*) || ' of ' || (select count(*) from tenure_events)
    from tenure_outbox having count(*) <> (select count(*) from tenure_events)";

/// All rows of a lease have the same end and the same fence, and a fence belongs to one lease.
const POSTGRES_ROWS: &str = "
    select 'a token has ' || count(distinct fence) || ' fences and '
           || count(distinct locked_until) || ' ends'
    from outbox where lock_token is not null
    group by lock_token having count(distinct (fence, locked_until)) > 1
    union all
    select 'fence ' || fence || ' was given out ' || count(distinct lock_token) || ' times'
    from outbox where lock_token is not null
    group by fence having count(distinct lock_token) > 1";

const POSTGRES_ROWS_QUIET: &str = "
    select 'row ' || id || ' is ' || status from outbox
    where status not in ('PUBLISHED', 'COMPLETED', 'DEAD')";

const SQLITE_QUEUE: &str = "
    with held as (
        select i.value as id, l.token, l.holder from tenure_leases l, json_each(l.ids) i
    ), place as (
        select id, 'ready' as place from tenure_ready
        union all
        select id, 'the lease of ' || holder from held
        union all
        select id, 'dead' from tenure_dead
    ), ended as (
        select s.token, s.holder, i.value as id from tenure_settled s, json_each(s.ids) i
    )
    select 'item ' || id || ' is in ' || group_concat(place) from place
    group by id having count(*) > 1
    union all
    select 'item ' || id || ' is no event' from place
    where id not in (select id from tenure_events)
    union all
    select 'the hold of ' || holder || ' on ' || id || ' ended ' || count(*) || ' times'
    from ended group by token, holder, id having count(*) > 1
    union all
    select 'item ' || held.id || ' is held by ' || held.holder || ' after the end'
    from held join ended on ended.token = held.token and ended.id = held.id";

const SQLITE_QUEUE_QUIET: &str = "
    with ended as (
        select i.value as id, count(*) as times
        from tenure_settled s, json_each(s.ids) i
        where s.outcome in ('done', 'dead', 'buried')
        group by i.value
    )
    select 'item ' || e.id || ' was settled ' || coalesce(n.times, 0) || ' times in generation '
           || coalesce(s.generation, 0)
    from tenure_events e
    left join tenure_setbacks s on s.id = e.id
    left join ended n on n.id = e.id
    where coalesce(n.times, 0) <> coalesce(s.generation, 0) + 1
    union all
    select 'item ' || id || ' waits' from tenure_ready
    union all
    select 'a lease of ' || holder || ' is left' from tenure_leases";

/// Selects the time of the final settle of each item that was never replayed, in microseconds, and
/// whether it was a bury.
const POSTGRES_ENDS: &str = "
    select i.id, (extract(epoch from s.settled_at) * 1000000)::bigint, s.outcome = 'buried'
    from tenure_settled s cross join unnest(s.ids) as i(id)
    left join tenure_setbacks b on b.id = i.id
    where s.outcome in ('done', 'dead', 'buried') and coalesce(b.generation, 0) = 0";

/// Terminates some of the connections to this database.
const CUT: &str = "
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
    order by random() limit 2";

/// The tables of a layout.
#[derive(Clone)]
pub(super) enum Tables {
    None,
    PostgresQueue(String),
    PostgresRows(String),
    SqliteQueue(PathBuf),
}

/// The error of a failed check.
type Blind = Box<dyn std::error::Error + Send + Sync>;

impl Tables {
    /// Violations during the run.
    pub(super) async fn faults_while_running(&self) -> Result<Vec<String>, Blind> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::PostgresQueue(url) => {
                let mut faults = ask(url, POSTGRES_QUEUE).await?;
                faults.extend(ask(url, FAULTS).await?);
                Ok(faults)
            }
            Self::PostgresRows(url) => ask(url, POSTGRES_ROWS).await,
            Self::SqliteQueue(path) => ask_sqlite(path, SQLITE_QUEUE),
        }
    }

    /// Violations after all items are settled.
    pub(super) async fn faults_when_quiet(&self) -> Result<Vec<String>, Blind> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::PostgresQueue(url) => ask(url, POSTGRES_QUEUE_QUIET).await,
            Self::PostgresRows(url) => ask(url, POSTGRES_ROWS_QUIET).await,
            Self::SqliteQueue(path) => ask_sqlite(path, SQLITE_QUEUE_QUIET),
        }
    }

    /// The keys of the items in these tables.
    pub(super) fn keys(&self) -> Keys {
        match self {
            Self::None | Self::PostgresQueue(_) => Keys::Mixed,
            Self::PostgresRows(_) | Self::SqliteQueue(_) => Keys::None,
        }
    }

    /// The final settle of each item that was never replayed, in layouts whose clock distinguishes
    /// settles.
    pub(super) async fn ends(&self) -> Result<BTreeMap<ItemId, End>, Blind> {
        let Self::PostgresQueue(url) = self else {
            return Ok(BTreeMap::new());
        };
        let mut conn = PgConnection::connect(url).await?;
        let rows: Vec<(i64, i64, bool)> =
            sqlx::query_as(POSTGRES_ENDS).fetch_all(&mut conn).await?;
        let end = |(id, at, is_buried)| (ItemId::new(id), End { at, is_buried });
        Ok(rows.into_iter().map(end).collect())
    }

    pub(super) async fn cut(&self) -> Result<(), Blind> {
        if let Self::PostgresQueue(url) | Self::PostgresRows(url) = self {
            let mut conn = PgConnection::connect(url).await?;
            sqlx::query(CUT).execute(&mut conn).await?;
            conn.close().await?;
        }
        Ok(())
    }
}

async fn ask(url: &str, sql: &'static str) -> Result<Vec<String>, Blind> {
    let mut conn = PgConnection::connect(url).await?;
    let faults = sqlx::query_scalar(sql).fetch_all(&mut conn).await?;
    conn.close().await?;
    Ok(faults)
}

fn ask_sqlite(path: &PathBuf, sql: &'static str) -> Result<Vec<String>, Blind> {
    let conn = rusqlite::Connection::open(path)?;
    let mut statement = conn.prepare(sql)?;
    let faults = statement.query_map([], |row| row.get(0))?;
    Ok(faults.collect::<Result<_, _>>()?)
}
