//! The worlds in an SQLite file: the built-in outbox, and a lease table in each preset.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value;
use tempfile::TempDir;
use tenure_core::store::{LeaseStore, Operate, Store};
use tenure_core::{ItemId, LeaseTable, States};
use tenure_store::config::StoreConfig;
use tenure_store::sqlite::{SqliteRows, SqliteStore};

use super::memory::enqueue_ranked;
use super::{Soon, World};

/// The built-in outbox.
struct Queue {
    store: SqliteStore,
    path: PathBuf,
    /// The folder, which is removed with the world; `None` if the caller owns it.
    _folder: Option<TempDir>,
}

/// A fresh outbox in its own file.
pub(crate) async fn sqlite_queue() -> Box<dyn World> {
    Box::new(queue().await)
}

/// A lease table.
struct Rows {
    rows: SqliteRows,
    queue: Queue,
}

/// A fresh table with the columns and words of the preset `outbox`.
pub(crate) async fn sqlite_outbox() -> Box<dyn World> {
    rows(LeaseTable::outbox()).await
}

/// A fresh table with the columns and words of the preset `outbox_processing`.
pub(crate) async fn sqlite_processing() -> Box<dyn World> {
    rows(LeaseTable::outbox_processing()).await
}

/// A fresh table with the columns and words of the preset `webhook`.
pub(crate) async fn sqlite_webhook() -> Box<dyn World> {
    rows(LeaseTable::webhook()).await
}

/// A fresh table with the columns of the preset `sync_jobs`.
pub(crate) async fn sqlite_sync_jobs() -> Box<dyn World> {
    rows(LeaseTable::sync_jobs()).await
}

async fn rows(table: LeaseTable) -> Box<dyn World> {
    let queue = queue().await;
    queue.store.create_table(&table).await.expect("create");
    let rows = queue.store.rows(table).await.expect("open");
    Box::new(Rows { rows, queue })
}

async fn queue() -> Queue {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tenure.db");
    Queue {
        store: open(&path).await,
        path,
        _folder: Some(folder),
    }
}

/// The outbox in the caller's file.
pub(crate) async fn sqlite_on(path: &Path) -> Box<dyn World> {
    Box::new(Queue {
        store: open(path).await,
        path: path.to_owned(),
        _folder: None,
    })
}

async fn open(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path, &StoreConfig::default()).await;
    store.expect("open")
}

impl Queue {
    /// A connection that bypasses the store.
    fn connect(&self) -> Connection {
        Connection::open(&self.path).expect("another connection")
    }

    /// Every row of every table.
    fn dump(&self) -> rusqlite::Result<String> {
        let conn = self.connect();
        let snapshot = conn.unchecked_transaction()?;
        let tables: Vec<String> = snapshot
            .prepare("select name from sqlite_schema where type = 'table' order by name")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut text = String::new();
        for table in tables {
            let mut rows = snapshot.prepare(&format!("select * from \"{table}\""))?;
            let columns = rows.column_count();
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let values: Result<Vec<Value>, _> = (0..columns).map(|nth| row.get(nth)).collect();
                writeln!(text, "{table} {:?}", values?).expect("text");
            }
        }
        Ok(text)
    }
}

impl World for Queue {
    fn lease(&self) -> &dyn LeaseStore {
        &self.store
    }

    fn operate(&self) -> &dyn Operate {
        &self.store
    }

    fn outbox(&self) -> Option<&dyn Store> {
        Some(&self.store)
    }

    fn add_ranked<'a>(&'a self, ranks: &'a [u32]) -> Soon<'a, Vec<ItemId>> {
        Box::pin(enqueue_ranked(&self.store, ranks))
    }

    fn dump(&self) -> Soon<'_, String> {
        Box::pin(async { self.dump().expect("a dump") })
    }
}

impl World for Rows {
    fn lease(&self) -> &dyn LeaseStore {
        &self.rows
    }

    fn operate(&self) -> &dyn Operate {
        &self.rows
    }

    fn outbox(&self) -> Option<&dyn Store> {
        None
    }

    fn add_ranked<'a>(&'a self, ranks: &'a [u32]) -> Soon<'a, Vec<ItemId>> {
        Box::pin(async move {
            let conn = self.queue.connect();
            let insert = format!(
                "insert into {} (topic, payload, created_at)
                 values ('order.paid', '{{\"rank\":' || ?1 || '}}',
                         cast(unixepoch('subsec') * 1000 as integer) * 1000 + ?1 * 1000000)
                 returning id",
                self.rows.table().name.quoted(),
            );
            let insert =
                |rank: &u32| conn.query_row(&insert, [rank], |row| row.get(0).map(ItemId::new));
            let ids: Result<_, _> = ranks.iter().map(insert).collect();
            ids.expect("a plain insert")
        })
    }

    fn recovers_first(&self) -> bool {
        self.rows.table().states == States::Derived
    }

    fn dump(&self) -> Soon<'_, String> {
        World::dump(&self.queue)
    }
}
