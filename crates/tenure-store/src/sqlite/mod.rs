//! The store in an SQLite file: one process or several on one machine.
//!
//! All writes go through the one thread of [`writer::Writer`]; reads have connections of their own.
//! The clock of this machine judges leases. Fences of both layouts are drawn from `tenure_fence`.

mod connect;
pub(crate) mod error;
pub mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tenure_core::store::StoreError;
use tenure_core::{Clock, Timestamp};

use crate::config::StoreConfig;
use crate::memory::SystemClock;
use writer::Writer;

/// A store in an SQLite file. Clones share it.
#[derive(Clone)]
pub struct SqliteStore {
    writer: Writer,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens the file as a store; makes it, or brings its tables up to date, if need be.
    ///
    /// # Errors
    /// The file cannot be opened or made, is no database, or was written by a newer program.
    pub async fn open(path: &Path, config: &StoreConfig) -> Result<Self, StoreError> {
        let writer = Writer::open(path, config).await?;
        Ok(Self {
            writer,
            clock: Arc::new(SystemClock),
        })
    }

    /// The same store, judging leases by this clock.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The thread through which everything is written.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The given moment, or that of the store's clock.
    pub(crate) fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        given.unwrap_or_else(|| self.clock.now())
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}
