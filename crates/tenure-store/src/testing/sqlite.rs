//! Migrated SQLite files: copies of a file that this process migrates once.

use std::{fs, path::Path};

use rusqlite::Connection;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::config::StoreConfig;
use crate::sqlite::SqliteStore;

/// Writes a file with the empty tables of the newest version.
///
/// # Panics
///
/// The file, or one in the temporary folder, cannot be written.
pub async fn migrated_file(path: &Path) {
    static MIGRATED: OnceCell<Vec<u8>> = OnceCell::const_new();
    let bytes = MIGRATED.get_or_init(migrate).await;
    fs::write(path, bytes).expect("the file is writable");
}

async fn migrate() -> Vec<u8> {
    let name = format!("tenure-test-{}", Uuid::now_v7().simple());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).expect("the temporary folder is writable");
    let path = folder.join("migrated.db");
    SqliteStore::migrate(&path, &StoreConfig::default())
        .await
        .expect("a new file takes the migrations");
    // Once the log is empty, the file alone is complete.
    let busy: i64 = Connection::open(&path)
        .and_then(|file| file.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0)))
        .expect("the file is readable");
    assert_eq!(busy, 0, "another connection holds the log");
    let bytes = fs::read(&path).expect("the file is readable");
    fs::remove_dir_all(&folder).expect("the temporary folder is writable");
    bytes
}
