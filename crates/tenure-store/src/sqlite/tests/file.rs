//! The file: opening it, refusals, and other processes that write to it.

use std::time::Duration;

use tenure_core::store::{Intake, Operate, Queues as _, StoreError, StoreErrorKind};

use super::*;
use crate::config::Synchronous;
use crate::sqlite::migration_sql;

async fn refused(path: &std::path::Path) -> StoreError {
    SqliteStore::open(path, &StoreConfig::default())
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_file_that_cannot_be_a_store_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("nowhere/tenure.db")).await;
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.to_string().contains("there is no folder"), "{error}");
    let error = refused(folder.path()).await;
    assert!(error.to_string().contains("is a folder"), "{error}");
    let prose = folder.path().join("prose.txt");
    std::fs::write(&prose, "It was a bright cold day in April. ".repeat(100)).unwrap();
    let error = refused(&prose).await;
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(
        error.to_string().contains("not an SQLite database"),
        "{error}"
    );
    let error = refused(std::path::Path::new(":memory:")).await;
    assert!(error.to_string().contains("write-ahead log"), "{error}");
}

#[tokio::test]
async fn a_file_opens_with_any_busy_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        busy_timeout: Duration::MAX,
        ..StoreConfig::default()
    };
    let store = SqliteStore::open(folder.path().join("tenure.db").as_path(), &config).await;
    assert_eq!(store.unwrap().queues().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_rejected() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    connection
        .execute("insert into tenure_migrations values (99, 2, 0)", [])
        .unwrap();
    let error = refused(&bench.path).await;
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.to_string().contains("version 99"), "{error}");
    assert!(error.hint().unwrap().contains("newer"));
}

#[tokio::test]
async fn tables_are_created_once_and_user_version_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let application = Connection::open(&path).unwrap();
    application
        .execute_batch("pragma user_version = 12")
        .unwrap();
    let config = StoreConfig::default();
    let made = SqliteStore::migrate(&path, &config).await.unwrap();
    assert_eq!((made.from, made.to.tables), (0, 1));
    let again = SqliteStore::migrate(&path, &config).await.unwrap();
    assert!(!again.is_changed(), "{again:?}");
    assert_eq!(number(&application, "pragma user_version"), 12);
}

#[tokio::test]
async fn a_file_that_was_migrated_by_hand_is_not_migrated_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch(&migration_sql())
        .unwrap();
    let config = StoreConfig::default();
    let again = SqliteStore::migrate(&path, &config).await.unwrap();
    assert!(!again.is_changed(), "{again:?}");
    let store = SqliteStore::open(&path, &config).await.unwrap();
    assert!(store.enqueue(&[event("a")]).await.unwrap()[0].is_fresh());
}

#[tokio::test]
async fn the_synchronous_setting_reaches_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    for (synchronous, level) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let config = StoreConfig {
            synchronous,
            ..StoreConfig::default()
        };
        let store = SqliteStore::open(&folder.path().join("t.db"), &config)
            .await
            .unwrap();
        let found = store
            .writer()
            .write("look", |connection| {
                Ok(number(connection, "pragma synchronous"))
            })
            .await
            .unwrap();
        assert_eq!(found, level);
    }
}

/// A second connection stands for another process: the file lock does not distinguish them.
#[tokio::test]
async fn a_write_that_another_process_blocks_too_long_fails_as_transient() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let config = StoreConfig {
        busy_timeout: Duration::from_millis(50),
        ..StoreConfig::default()
    };
    let store = SqliteStore::open(&path, &config).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let error = store.enqueue(&[event("a")]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.is_transient());
    assert!(error.hint().unwrap().contains("write transaction open"));
    // Reads continue meanwhile.
    assert_eq!(store.count(None).await.unwrap().pending(), 0);
    other.execute_batch("rollback").unwrap();
    assert!(store.enqueue(&[event("a")]).await.unwrap()[0].is_fresh());
}

#[tokio::test]
async fn a_write_waits_for_a_short_write_of_another_process() {
    let bench = Bench::new().await;
    let other = bench.stranger();
    other.execute_batch("begin immediate").unwrap();
    SqliteStore::enqueue_on(&other, &[event("theirs")]).unwrap();
    let store = bench.store.clone();
    let ours = tokio::spawn(async move { store.enqueue(&[event("ours")]).await });
    tokio::task::yield_now().await;
    other.execute_batch("commit").unwrap();
    assert_eq!(ours.await.unwrap().unwrap()[0].id().number(), 2);
}

#[tokio::test]
async fn accepted_events_survive_a_restart() {
    let Bench {
        store,
        path,
        folder: _folder,
    } = Bench::new().await;
    let ids: Vec<_> = store
        .enqueue(&vec![event("a"); 10])
        .await
        .unwrap()
        .into_iter()
        .map(tenure_core::store::Enqueued::id)
        .collect();
    drop(store);
    let again = SqliteStore::open(&path, &StoreConfig::default())
        .await
        .unwrap();
    assert_eq!(again.find(&ids).await.unwrap().len(), 10);
}
