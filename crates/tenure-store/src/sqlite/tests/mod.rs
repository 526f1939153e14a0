//! Tests of what only this store has: its file, its view, the caller's own connection, its plans.
//! What every store promises is in the conformance suite.

mod domains;
mod file;
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

    /// A connection of somebody else's.
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
