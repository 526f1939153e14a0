//! What speed is measured against: the loops that a careful engineer writes by hand, on the same
//! database, in the same run; and the bare layout of ours, without an engine.
//!
//! Everything happens in scratch tables: a schema of its own on PostgreSQL, a file of its own on
//! SQLite. The measuring itself, in turns and with an engine, is done by `tenure bench`.

mod jobs;
mod postgres;
mod postgres_jobs;
mod sqlite;
mod sqlite_jobs;
mod still;
mod work_lease;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tenure_core::store::{Claim, Settle, Store, StoreError, StoreErrorKind};
use tenure_core::{Event, Identifier, Invalid, Token, WorkerId};

pub use postgres::{OldSnapshot, PostgresYardstick};
pub use sqlite::SqliteYardstick;
pub use work_lease::work_lease_pairs;

use crate::config::StoreConfig;

/// How a loop is run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Items per claim.
    pub batch: u32,
    /// Loops at once. SQLite has one writer, hence one loop.
    pub loops: u32,
}

/// A bare loop measures itself: how many per second.
pub type Rate = Result<f64, StoreError>;

/// The bare loops on one database.
#[derive(Debug)]
#[non_exhaustive]
pub enum Yardstick {
    /// On PostgreSQL.
    Postgres(PostgresYardstick),
    /// On SQLite.
    Sqlite(SqliteYardstick),
}

/// How many scratch files this process has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

impl Yardstick {
    /// Makes fresh scratch tables beside the database that the address names: the schema
    /// `tenure_bench_<name>`, or a file in the same folder.
    ///
    /// # Errors
    /// The database cannot be reached, or the role may not make a schema.
    pub async fn open(url: &str, name: &str) -> Result<Self, StoreError> {
        if let Some(path) = url
            .strip_prefix("sqlite://")
            .or(url.strip_prefix("sqlite:"))
        {
            // A file of its own each time: one that was closed may be taken away a moment later,
            // and with it what stands beside another of the same name.
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
        .hint("expected postgres://USER@HOST/DATABASE or sqlite://FILE"))
    }

    /// Where an engine finds the scratch tables.
    pub fn address(&self) -> (String, StoreConfig) {
        match self {
            Self::Postgres(yardstick) => yardstick.address(),
            Self::Sqlite(yardstick) => yardstick.address(),
        }
    }

    /// The store over the scratch tables.
    pub fn store(&self) -> &dyn Store {
        match self {
            Self::Postgres(yardstick) => yardstick.store(),
            Self::Sqlite(yardstick) => yardstick.store(),
        }
    }

    /// One table; an update to claim, an update to complete.
    ///
    /// # Errors
    /// The database failed.
    pub async fn row_drain(&self, events: u32, shape: Shape) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_drain(events, shape).await,
            Self::Sqlite(yardstick) => yardstick.row_drain(events, shape.batch).await,
        }
    }

    /// The layout of ours without an engine: settle and claim in a loop.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bare_drain(&self, events: u32, shape: Shape) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_drain(events, shape).await,
            Self::Sqlite(yardstick) => yardstick.bare_drain(events, shape.batch).await,
        }
    }

    /// Many rows per insert into one table.
    ///
    /// # Errors
    /// The database failed.
    pub async fn row_enqueue(&self, events: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_enqueue(events).await,
            Self::Sqlite(yardstick) => yardstick.row_enqueue(events).await,
        }
    }

    /// Many rows per insert into the two tables that an event needs.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bare_enqueue(&self, events: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_enqueue(events).await,
            Self::Sqlite(yardstick) => yardstick.bare_enqueue(events).await,
        }
    }

    /// One row per insert into one table, by several producers at once.
    ///
    /// # Errors
    /// The database failed.
    pub async fn row_insert(&self, events: u32, producers: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.row_insert(events, producers).await,
            Self::Sqlite(yardstick) => yardstick.row_insert(events, producers).await,
        }
    }

    /// Enqueues this many events, a thousand at a time, on `producers` connections.
    ///
    /// # Errors
    /// The database failed.
    pub async fn fill(&self, events: u32, producers: u32) -> Rate {
        self.fill_with(&[event()], events, producers).await
    }

    /// The same, with keys that take turns: each event has the next of so many.
    ///
    /// # Errors
    /// The database failed.
    pub async fn fill_keyed(&self, events: u32, producers: u32, keys: u32) -> Rate {
        // No more than are needed; made before the clock starts.
        let pattern: Result<Vec<Event>, Invalid> = (0..keys.min(events))
            .map(|n| event().key(&format!("customer-{n}")))
            .collect();
        let pattern = pattern.map_err(|problem| StoreError::invalid("bench", &problem))?;
        self.fill_with(&pattern, events, producers).await
    }

    async fn fill_with(&self, pattern: &[Event], events: u32, producers: u32) -> Rate {
        let pattern = cycle(pattern);
        let watch = Watch::start();
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

    /// Gives every domain its head. Claims do so by themselves, bit by bit, where an enqueue does
    /// not.
    ///
    /// # Errors
    /// The database failed.
    pub async fn place(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.place().await,
            Self::Sqlite(_) => Ok(()),
        }
    }

    /// Brings the tables into the state in which a drain is measured.
    ///
    /// # Errors
    /// The database failed.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.tidy_all().await,
            Self::Sqlite(yardstick) => yardstick.tidy().await,
        }
    }

    /// Writes down, as a bare loop does it, that so many calls are about to be made: one row for
    /// each, in one transaction.
    ///
    /// # Errors
    /// The database failed.
    pub async fn open_attempts(&self, calls: u32) -> Result<Vec<i64>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.open_attempts(calls).await,
            Self::Sqlite(yardstick) => yardstick.open_attempts(calls).await,
        }
    }

    /// Writes down that these calls were answered with this status, in one transaction.
    ///
    /// # Errors
    /// The database failed.
    pub async fn close_attempts(&self, ids: Vec<i64>, status: u16) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.close_attempts(ids, status).await,
            Self::Sqlite(yardstick) => yardstick.close_attempts(ids, status).await,
        }
    }

    /// Which connections programs of ours have to the database, by their process ids; `None` where
    /// there is no such thing.
    ///
    /// # Errors
    /// The database failed.
    pub async fn sessions(&self) -> Result<Option<Vec<i32>>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.sessions().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Holds a snapshot open; `None` where there is no such thing.
    ///
    /// # Errors
    /// The database failed.
    pub async fn old_snapshot(&self) -> Result<Option<OldSnapshot>, StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.old_snapshot().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Takes the scratch tables away.
    ///
    /// # Errors
    /// The database failed.
    pub async fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.close().await,
            Self::Sqlite(yardstick) => {
                yardstick.close();
                Ok(())
            }
        }
    }
}

/// The name of a chunk, and of the matrix that it is of, in what is measured.
pub fn chunk_name(number: u32) -> String {
    format!("chunk-{number}")
}

/// Events per enqueue in bulk.
const BULK: usize = 1000;

/// The pattern as often as it takes for one enqueue in bulk.
fn cycle(pattern: &[Event]) -> Vec<Event> {
    let times = BULK.div_ceil(pattern.len().max(1));
    let whole = pattern.len() * times;
    pattern.iter().cycle().take(whole).cloned().collect()
}

/// Enqueues so many events in bulk: those of the pattern, over and over.
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

/// Settles and claims until nothing is left; answers how many items.
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

/// Runs a few futures at once, in the order given.
pub(crate) async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    use std::task::Poll;

    let mut waiting: Vec<_> = futures
        .into_iter()
        .map(|future| (Box::pin(future), None))
        .collect();
    std::future::poll_fn(|cx| {
        let mut is_over = true;
        for (future, answer) in &mut waiting {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    waiting
        .into_iter()
        .filter_map(|(_, answer)| answer)
        .collect()
}

/// A payload of about 500 bytes, as every figure assumes.
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
pub fn event() -> Event {
    Event::from_json("bench.event", payload()).expect("the payload is JSON")
}

/// A token that a bare loop claims under.
pub(crate) fn token() -> Token {
    let worker = WorkerId::new("bench", rand::random()).expect("`bench` is a worker's name");
    Token::new(&worker, 1, rand::random())
}

/// Measures how long something took.
#[derive(Debug)]
pub struct Watch(Instant);

impl Watch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// How many per second, if `count` were done since the start.
    pub fn rate(&self, count: u32) -> f64 {
        f64::from(count) / self.elapsed().as_secs_f64()
    }
}
