//! Readers: read-only connections beside the writer thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tenure_core::store::{StoreError, StoreErrorKind};
use tokio::sync::Semaphore;

use super::connect;
use super::error::failed;
use super::writer::caught;
use crate::config::StoreConfig;

/// Maximum reading connections: reads are few (operators, settings, due replays and deliveries).
const READERS_MAX: usize = 4;

/// The reading connections, opened on first use.
pub(super) struct Readers {
    pub(super) path: PathBuf,
    config: StoreConfig,
    pub(super) turns: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// The file that the writer has opened.
    file: Option<FileIdentity>,
}

/// Device and number of a file. Another file at the same path has another identity.
type FileIdentity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<FileIdentity> {
    None
}

impl Readers {
    pub(super) fn new(path: &Path, config: &StoreConfig) -> Self {
        Self {
            path: path.to_owned(),
            config: config.clone(),
            turns: Arc::new(Semaphore::new(READERS_MAX)),
            idle: Mutex::new(Vec::new()),
            file: identity(path),
        }
    }

    pub(super) fn run<T>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check_file(verb)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect::reader(&self.path, &self.config)?,
        };
        connection.execute_batch("begin").map_err(failed(verb))?;
        let result = caught(verb, || op(&connection));
        if connection.execute_batch("rollback").is_ok() {
            self.idle().push(connection);
        }
        result
    }

    /// Reports a file that was deleted or replaced. SQLite goes on with the old file, which other
    /// programs no longer see: their events would never be worked.
    fn check_file(&self, verb: &'static str) -> Result<(), StoreError> {
        if self.file.is_none() || self.file == identity(&self.path) {
            return Ok(());
        }
        let problem = "the database file was deleted or replaced while it is open";
        Err(StoreError::new(verb, StoreErrorKind::Unavailable, problem)
            .with_hint("put the file back, or restart the program to use the new one"))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
