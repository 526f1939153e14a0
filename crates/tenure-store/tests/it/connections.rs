//! The connections of a store; its companion uses the same database through separate ones.

use std::sync::Arc;

use tenure_core::store::Queues as _;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::{Opened, open, testing};

/// Each connection costs a backend of the server, so a command should need few. `open` uses one and
/// closes it; a pool that was used by `open` would have opened another one for the first operation.
#[tokio::test]
async fn opening_a_store_leaves_its_pool_unused() {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    assert_eq!(store.pool().size(), 0);
    assert_eq!(store.queues().await.unwrap().len(), 1);
    assert_eq!(store.pool().size(), 1);
}

/// Goal: the heartbeat's connections belong only to the heartbeat's own runtime. Method: the test
/// creates the companion here, uses it on a thread with its own runtime, and checks both pools.
#[tokio::test]
async fn a_companion_connects_where_it_is_used_and_borrows_no_connection() {
    let database = testing::migrated().await;
    let config = StoreConfig {
        connections: 1,
        ..StoreConfig::default()
    };
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    // All connections of the store itself are in use.
    let taken = store.pool().acquire().await.unwrap();

    let companion = store.companion(2);
    assert_eq!(companion.pool().size(), 0);
    let beat = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let queues = runtime.block_on(companion.queues()).unwrap();
        (queues.len(), companion.pool().size())
    };
    let seen = tokio::task::spawn_blocking(beat).await.unwrap();
    assert_eq!(seen, (1, 1));
    drop(taken);
    assert_eq!(store.queues().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_store_without_connections_is_its_own_companion() {
    let opened = open("memory:", &StoreConfig::default()).await.unwrap();
    let Opened::Memory(store) = &opened else {
        panic!("{opened:?}");
    };
    let companion = opened.companion(2);
    assert_eq!(Arc::strong_count(store), 2);
    drop(companion);
    assert_eq!(Arc::strong_count(store), 1);
}
