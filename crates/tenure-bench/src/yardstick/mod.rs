//! The yardstick: SQL loops as a careful engineer writes them by hand, on the same database, in the
//! same run; and Tenure's own tables without an engine.
//!
//! All runs use scratch tables: a separate schema on PostgreSQL, a separate file on SQLite.
//! `bench/` runs these loops alternating with an engine.

mod blocked_keys;
mod jobs;
mod postgres;
mod postgres_jobs;
mod sqlite;
mod sqlite_jobs;
mod work_lease;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure::lease::{Claim, Settle, Token, WorkerId};
use tenure::store::Store;
use tenure::table::Identifier;
use tenure::{Event, NewEvent, Problems, StoreConfig, StoreError, StoreErrorKind};

use self::postgres::{OldSnapshot, PostgresYardstick};
use self::sqlite::SqliteYardstick;
pub(crate) use self::work_lease::work_lease_pairs;

/// The size of a bare loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Items per claim.
    pub(crate) batch: u32,
    /// Concurrent loops. SQLite has one writer, hence one loop.
    pub(crate) loops: u32,
}

/// A rate per second, as measured by the bare loop itself.
pub(crate) type Rate = Result<f64, StoreError>;

/// The bare loops on one database.
#[derive(Debug)]
pub(crate) enum Yardstick {
    Postgres(PostgresYardstick),
    Sqlite(SqliteYardstick),
}

/// Number of scratch files that this process has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

impl Yardstick {
    /// Creates fresh scratch tables: in the schema `tenure_bench_<name>` of the PostgreSQL
    /// database, or in a file next to the SQLite file.
    pub(crate) async fn open(url: &str, name: &str) -> Result<Self, StoreError> {
        if let Some(path) = url
            .strip_prefix("sqlite://")
            .or(url.strip_prefix("sqlite:"))
        {
            // Use a new name each time: an old connection may close a moment later, and SQLite then
            // deletes the log of a new file of the same name.
            let nth = OPENED.fetch_add(1, Ordering::Relaxed);
            let path = PathBuf::from(format!("{path}.bench-{name}-{nth}"));
            return Ok(Self::Sqlite(SqliteYardstick::open(path).await?));
        }
        if url.starts_with("postgres") {
            let schema = Identifier::new(&format!("tenure_bench_{name}"))
                .map_err(|problem| StoreError::invalid("bench", &problem))?;
            let yardstick = PostgresYardstick::open(url, schema).await?;
            return Ok(Self::Postgres(yardstick));
        }
        Err(StoreError::new(
            "bench",
            StoreErrorKind::Invalid,
            "the address names no database that can be measured",
        )
        .with_hint("expected postgres://USER@HOST/DATABASE or sqlite://FILE"))
    }

    /// The address and configuration of the scratch tables for an engine.
    pub(crate) fn address(&self) -> (String, StoreConfig) {
        match self {
            Self::Postgres(yardstick) => yardstick.address(),
            Self::Sqlite(yardstick) => yardstick.address(),
        }
    }

    /// The store over the scratch tables.
    pub(crate) fn store(&self) -> &dyn Store {
        match self {
            Self::Postgres(yardstick) => yardstick.store(),
            Self::Sqlite(yardstick) => yardstick.store(),
        }
    }

    /// Drains one table: one update claims, another one completes.
    pub(crate) async fn row_drain(&self, events: u32, shape: Shape) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_drain(events, shape).await,
            Self::Sqlite(yardstick) => yardstick.row_drain(events, shape.batch).await,
        }
    }

    /// Drains Tenure's tables without an engine: settle and claim in a loop.
    pub(crate) async fn bare_drain(&self, events: u32, shape: Shape) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_drain(events, shape).await,
            Self::Sqlite(yardstick) => yardstick.bare_drain(events, shape.batch).await,
        }
    }

    /// Inserts rows into one table, a thousand per transaction.
    pub(crate) async fn row_enqueue(&self, events: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_enqueue(events).await,
            Self::Sqlite(yardstick) => yardstick.row_enqueue(events).await,
        }
    }

    /// Inserts rows into the two tables that an event needs, a thousand events per transaction.
    pub(crate) async fn bare_enqueue(&self, events: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_enqueue(events).await,
            Self::Sqlite(yardstick) => yardstick.bare_enqueue(events).await,
        }
    }

    /// Inserts rows into one table, one per transaction, by several producers at once.
    pub(crate) async fn row_insert(&self, events: u32, producers: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_insert(events, producers).await,
            Self::Sqlite(yardstick) => yardstick.row_insert(events, producers).await,
        }
    }

    /// Enqueues this many events, a thousand at a time, on `producers` connections.
    pub(crate) async fn fill(&self, events: u32, producers: u32) -> Rate {
        self.fill_with(&[event()], events, producers).await
    }

    /// Like [`Self::fill`], spread evenly over this many keys.
    pub(crate) async fn fill_keyed(&self, events: u32, producers: u32, keys: u32) -> Rate {
        // Only as many keys as needed; created before the clock starts.
        let pattern: Result<Vec<Event>, Problems> = (0..keys.min(events))
            .map(|n| {
                NewEvent::from(event())
                    .key(&format!("customer-{n}"))
                    .build()
            })
            .collect();
        let pattern = pattern.map_err(|problem| StoreError::invalid("bench", &problem))?;
        self.fill_with(&pattern, events, producers).await
    }

    /// Like [`Self::fill`], with a topic that no worker takes.
    pub(crate) async fn fill_untaken(&self, events: u32, producers: u32) -> Result<(), StoreError> {
        let event = Event::from_json("bench.untaken", payload());
        let event = event.map_err(|problem| StoreError::invalid("bench", &problem))?;
        self.fill_with(&[event], events, producers).await.map(drop)
    }

    async fn fill_with(&self, pattern: &[Event], events: u32, producers: u32) -> Rate {
        let pattern = cycle(pattern);
        let watch = Stopwatch::start();
        let store = self.store();
        let mut shares = Vec::new();
        for n in 0..producers {
            let share = events / producers + u32::from(n < events % producers);
            shares.push(fill(store, &pattern, share));
        }
        for done in join_all(shares).await {
            done?;
        }
        Ok(watch.rate(events))
    }

    /// Brings the tables into the state for measuring a drain.
    pub(crate) async fn tidy(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.tidy_all().await,
            Self::Sqlite(yardstick) => yardstick.tidy().await,
        }
    }

    /// Records, as a bare loop does, that this many calls are about to start: one row each, in one
    /// transaction.
    pub(crate) async fn open_attempts(&self, calls: u32) -> Result<Vec<i64>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.open_attempts(calls).await,
            Self::Sqlite(yardstick) => yardstick.open_attempts(calls).await,
        }
    }

    /// Records the status of these calls, in one transaction.
    pub(crate) async fn close_attempts(
        &self,
        ids: Vec<i64>,
        status: u16,
    ) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.close_attempts(ids, status).await,
            Self::Sqlite(yardstick) => yardstick.close_attempts(ids, status).await,
        }
    }

    /// Process ids, on the server, of all connections of Tenure's programs to the database; `None`
    /// for SQLite, which has no server.
    pub(crate) async fn sessions(&self) -> Result<Option<Vec<i32>>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.sessions().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Holds a snapshot open; `None` for a database on which a snapshot costs nothing.
    pub(crate) async fn old_snapshot(&self) -> Result<Option<OldSnapshot>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.old_snapshot().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Drops the scratch tables.
    pub(crate) async fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.close().await,
            Self::Sqlite(yardstick) => {
                yardstick.close();
                Ok(())
            }
        }
    }
}

/// The name of a measured chunk.
pub(crate) fn chunk_name(number: u32) -> String {
    format!("chunk-{number}")
}

/// Events per enqueue in bulk.
const BULK: usize = 1000;

/// Repeats the pattern until it fills one bulk enqueue.
fn cycle(pattern: &[Event]) -> Vec<Event> {
    let times = BULK.div_ceil(pattern.len().max(1));
    let whole = pattern.len() * times;
    pattern.iter().cycle().take(whole).cloned().collect()
}

/// Enqueues this many events in bulk, repeating the pattern.
async fn fill(store: &dyn Store, pattern: &[Event], events: u32) -> Result<(), StoreError> {
    let mut left = usize::try_from(events).unwrap_or(usize::MAX);
    for batch in pattern.chunks(BULK).cycle() {
        let part = batch.get(..left).unwrap_or(batch);
        if part.is_empty() {
            break;
        }
        store.enqueue(part).await?;
        left -= part.len();
    }
    Ok(())
}

/// Settles and claims until nothing is left; returns the number of items.
async fn bare_loop(store: &dyn Store, batch: u32) -> Result<u32, StoreError> {
    let claim = || Claim::new(token(), batch);
    let mut done = 0;
    let mut held = store.claim(&claim()).await?;
    while let Some(items) = held {
        done += u32::try_from(items.items.len()).unwrap_or(u32::MAX);
        let settle = Settle::new(items.lease.token.clone()).done(items.ids());
        let (settlement, next) = store.settle_and_claim(&settle, &claim()).await?;
        assert!(
            settlement.refused().next().is_none(),
            "a settle was refused"
        );
        held = next;
    }
    Ok(done)
}

/// The topic of the measured events.
pub(crate) const TOPIC: &str = "bench.event";

/// A payload of about 500 bytes, which every figure assumes.
pub(crate) fn payload() -> String {
    format!(
        r#"{{"order":4711,"customer":"c-1234567","note":"{}"}}"#,
        "x".repeat(440)
    )
}

/// An event with that payload.
///
/// # Panics
/// Never: the payload is JSON.
pub(crate) fn event() -> Event {
    Event::from_json(TOPIC, payload()).expect("the payload is JSON")
}

/// A token for the claims of a bare loop.
pub(crate) fn token() -> Token {
    let worker = WorkerId::new("bench", rand::random()).expect("`bench` is a worker's name");
    Token::new(&worker, 1, rand::random())
}

#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The rate per second of `count` since the start.
    pub(crate) fn rate(&self, count: u32) -> f64 {
        f64::from(count) / self.elapsed().as_secs_f64()
    }
}
