//! Tests specific to this store: its file, its view, the caller's own connection, its plans. The
//! conformance suite tests the guarantees of every store.

mod file;
mod keys;
mod plans;
mod producer;
mod webhooks;

use std::path::PathBuf;

use rusqlite::Connection;
use tenure_core::Event;

use super::SqliteStore;
use crate::config::StoreConfig;

/// A fresh store and its file.
struct Bench {
    store: SqliteStore,
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let store = SqliteStore::open(&path, &StoreConfig::default())
            .await
            .unwrap();
        Self {
            store,
            path,
            folder,
        }
    }

    /// A separate connection to the file.
    fn stranger(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

fn event(topic: &str) -> Event {
    Event::new(topic, &serde_json::json!({"order": 7})).unwrap()
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
