//! The worlds on PostgreSQL: the built-in outbox, and a lease table in each preset.

use tenure_core::ItemId;
use tenure_core::store::{LeaseStore, Operate, Store};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use super::memory::enqueue_ranked;
use super::{Soon, World};

/// The built-in outbox.
struct Queue {
    store: PostgresStore,
    _database: Database,
}

/// A fresh outbox on PostgreSQL.
pub(crate) async fn postgres_queue() -> Box<dyn World> {
    let database = testing::postgres().await;
    let store = open(&database.url).await;
    Box::new(Queue {
        store,
        _database: database,
    })
}

/// A migrated store with few connections: a hundred tests share the server.
async fn open(url: &str) -> PostgresStore {
    let config = StoreConfig {
        connections: 4,
        ..StoreConfig::default()
    };
    PostgresStore::migrate(url, &config).await.expect("migrate");
    PostgresStore::open(url, &config).await.expect("open")
}

/// Every row of every table and view, in one snapshot.
async fn dump(store: &PostgresStore) -> String {
    sqlx::query_scalar("select schema_to_xml('public', true, false, '')::text")
        .fetch_one(store.pool())
        .await
        .expect("a dump")
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
        Box::pin(dump(&self.store))
    }
}
