//! Readers: read-only connections beside the writer thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tenure_core::store::StoreError;
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
}

impl Readers {
    pub(super) fn new(path: &Path, config: &StoreConfig) -> Self {
        Self {
            path: path.to_owned(),
            config: config.clone(),
            turns: Arc::new(Semaphore::new(READERS_MAX)),
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn run<T>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
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

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
