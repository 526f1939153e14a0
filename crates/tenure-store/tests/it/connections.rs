//! The connections of a store; its companion uses the same database through separate ones.

use std::sync::Arc;

use tenure_core::Event;
use tenure_core::store::{Intake as _, Queues as _};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::{Opened, open, testing};
use tokio::task::JoinSet;

/// Each connection costs a backend of the server, and sqlx's pool opens another one while it tests
/// the last.
#[tokio::test]
async fn statements_one_after_another_use_one_connection() {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    for _ in 0..20 {
        assert_eq!(store.queues().await.unwrap().len(), 1);
    }
    assert_eq!(store.pool().size(), 1);
}

/// The connections between two statements must not starve the users of the pool, nor borrowers that
/// wait for it.
#[tokio::test]
async fn every_connection_can_be_had_again() {
    for connections in 1..4 {
        let database = testing::migrated().await;
        let config = StoreConfig {
            connections,
            companion: 0,
            ..StoreConfig::default()
        };
        let store = PostgresStore::open(&database.url, &config).await.unwrap();
        let store = Arc::new(store);
        for _ in 0..50 {
            let mut statements = JoinSet::new();
            for _ in 0..8 {
                let store = Arc::clone(&store);
                statements.spawn(async move { store.queues().await.unwrap().len() });
            }
            assert_eq!(statements.join_all().await, [1; 8]);
            drop(store.pool().acquire().await.unwrap());
        }
        assert!(store.pool().size() <= connections);
    }
}

/// The application may need every connection of its pool.
#[tokio::test]
async fn a_store_on_the_pool_of_an_application_returns_every_connection() {
    let database = testing::migrated().await;
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(2);
    let pool = options.connect(&database.url).await.unwrap();
    let config = StoreConfig::default();
    let store = PostgresStore::on_pool(pool.clone(), &config).await.unwrap();
    for _ in 0..20 {
        assert_eq!(store.queues().await.unwrap().len(), 1);
        let all = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
        drop(all);
    }
}

/// After a failover the connections to the old primary may still answer, but only read.
#[tokio::test]
async fn after_a_refused_write_the_store_connects_anew() {
    let database = testing::migrated().await;
    let config = StoreConfig {
        connections: 1,
        ..StoreConfig::default()
    };
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    let only_reads = sqlx::raw_sql("set default_transaction_read_only = on");
    only_reads.execute(store.pool()).await.unwrap();
    let event = [Event::new("a", &1).unwrap()];
    let error = store.enqueue(&event).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    store.enqueue(&event).await.unwrap();
}

/// A store may outlive the runtime that it was used on.
#[test]
fn a_store_can_be_dropped_without_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, database) = runtime.block_on(async {
        let database = testing::migrated().await;
        let config = StoreConfig::default();
        let store = PostgresStore::open(&database.url, &config).await.unwrap();
        assert_eq!(store.queues().await.unwrap().len(), 1);
        (store, database)
    });
    drop(runtime);
    drop(store);
    drop(database);
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
