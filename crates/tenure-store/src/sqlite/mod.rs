//! The store in an SQLite file: one process or several on one machine.
//!
//! All writes go through the one thread of [`writer::Writer`]; reads have their own connections. An
//! operation is one transaction: it reads, decides and writes, and no other connection can write
//! meanwhile. The clock of this machine decides whether a lease is live; an operation reads the
//! clock when its turn comes.
//! Both layouts draw fences from `tenure_fence`.

mod adopt;
mod bury;
mod calls;
mod checks;
mod claim;
mod cluster;
mod connect;
mod delays;
pub(crate) mod error;
mod examine;
mod fan_out;
mod holds;
mod intake;
mod item_states;
mod jobs;
mod keys;
pub(crate) mod migrate;
pub(crate) mod open;
mod operate;
mod prune;
mod queue;
mod readers;
mod reap;
mod replay;
mod replays;
mod row;
mod rows;
mod settle;
mod sources;
mod statements;
mod table_facts;
#[cfg(test)]
mod tests;
mod turns;
mod webhooks;
mod work_lease;
pub mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tenure_core::store::StoreError;
use tenure_core::{Clock, Timestamp};

use crate::config::StoreConfig;
use crate::memory::SystemClock;
pub use migrate::migration_sql;
use writer::Writer;

pub use rows::SqliteRows;

/// A store in an SQLite file. Clones share it.
///
/// ```
/// use tenure_core::Event;
/// use tenure_core::store::{Claim, Intake, LeaseStore, Settle};
/// use tenure_core::{Token, WorkerId};
/// use tenure_store::config::StoreConfig;
/// use tenure_store::sqlite::SqliteStore;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let folder = tempfile::tempdir()?;
/// # runtime.block_on(async {
/// let store = SqliteStore::open(&folder.path().join("shop.db"), &StoreConfig::default()).await?;
/// store.enqueue(&[Event::new("order.paid", &7)?]).await?;
///
/// let token = Token::new(&WorkerId::new("mailer", 7)?, 1, rand::random());
/// let held = store.claim(&Claim::new(token.clone(), 10)).await?.expect("one event waits");
/// let settlement = store.settle(&Settle::new(token).done(held.ids())).await?;
/// assert_eq!(settlement.refused().count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    writer: Writer,
    clock: Arc<dyn Clock>,
    jobs: jobs::JobStore,
}

impl SqliteStore {
    /// Opens the file as a store; creates it or migrates its tables if necessary.
    ///
    /// # Errors
    /// The file cannot be opened or created, is not a database, or is too new for this program.
    pub async fn open(path: &Path, config: &StoreConfig) -> Result<Self, StoreError> {
        let writer = Writer::open(path, config).await?;
        migrate::migrate(&writer).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            jobs: jobs::JobStore::open(&writer, &clock).await?,
            writer,
            clock,
        })
    }

    /// The same store, with this clock.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.jobs = self.jobs.with_clock(&clock);
        self.clock = clock;
        self
    }

    /// The thread that executes all writes.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Returns the given moment, or the current time of the store's clock.
    pub(crate) fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        moment_of(self.clock.as_ref(), given)
    }

    /// Writes. `op` gets the time at which its turn comes, so that the times of operations rise in
    /// the order in which they take effect.
    async fn write<T: Send + 'static>(
        &self,
        verb: &'static str,
        given: Option<Timestamp>,
        op: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = Arc::clone(&self.clock);
        self.writer
            .write(verb, move |connection| {
                op(connection, moment_of(clock.as_ref(), given))
            })
            .await
    }
}

/// Returns the given moment, or the current time of the clock.
fn moment_of(clock: &dyn Clock, given: Option<Timestamp>) -> Timestamp {
    given.unwrap_or_else(|| clock.now())
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}
