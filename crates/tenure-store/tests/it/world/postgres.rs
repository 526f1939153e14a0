//! The worlds on PostgreSQL: the built-in outbox, and a lease table in each preset.

use sqlx::AssertSqlSafe;
use tenure_core::store::{LeaseStore, Operate, Store};
use tenure_core::{ItemId, LeaseTable, States};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::{PostgresRows, PostgresStore};
use tenure_store::testing::{self, Database};

use super::memory::enqueue_ranked;
use super::{Soon, World};
use crate::faults::{Plant as _, Planted};

/// The built-in outbox.
struct Queue {
    store: PostgresStore,
    /// The database, which is removed with the world; `None` if the caller owns it.
    _database: Option<Database>,
}

/// A fresh outbox on PostgreSQL.
pub(crate) async fn postgres_queue() -> Box<dyn World> {
    Box::new(queue().await)
}

/// A fresh outbox on PostgreSQL with faults planted in its statements.
pub(crate) async fn postgres_planted(faults: &[Planted]) -> Box<dyn World> {
    let mut queue = queue().await;
    queue.store = queue.store.planted(faults);
    Box::new(queue)
}

/// A lease table.
struct Rows {
    rows: PostgresRows,
    queue: Queue,
}

/// A fresh table with the columns and words of the preset `outbox`.
pub(crate) async fn postgres_outbox() -> Box<dyn World> {
    rows(LeaseTable::outbox()).await
}

/// A fresh table with the columns and words of the preset `outbox_processing`.
pub(crate) async fn postgres_processing() -> Box<dyn World> {
    rows(LeaseTable::outbox_processing()).await
}

/// A fresh table with the columns and words of the preset `webhook`.
pub(crate) async fn postgres_webhook() -> Box<dyn World> {
    rows(LeaseTable::webhook()).await
}

/// A fresh table with the columns of the preset `sync_jobs`.
pub(crate) async fn postgres_sync_jobs() -> Box<dyn World> {
    rows(LeaseTable::sync_jobs()).await
}

/// A world in an existing database: the outbox, or a lease table.
pub(crate) async fn postgres_on(url: &str, table: Option<LeaseTable>) -> Box<dyn World> {
    let queue = Queue {
        store: open(url).await,
        _database: None,
    };
    match table {
        None => Box::new(queue),
        Some(table) => Box::new(Rows::create(queue, table).await),
    }
}

async fn rows(table: LeaseTable) -> Box<dyn World> {
    Box::new(Rows::create(queue().await, table).await)
}

async fn queue() -> Queue {
    let database = testing::migrated().await;
    Queue {
        store: open(&database.url).await,
        _database: Some(database),
    }
}

impl Rows {
    async fn create(queue: Queue, table: LeaseTable) -> Self {
        queue.store.create_table(&table).await.expect("create");
        let rows = queue.store.rows(table).await.expect("open");
        Self { rows, queue }
    }
}

/// Opens a migrated store. It has only as many connections as eight workers need, because tests
/// share a server.
async fn open(url: &str) -> PostgresStore {
    let config = StoreConfig {
        connections: 8,
        ..StoreConfig::default()
    };
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
        let ranks: Vec<i64> = ranks.iter().copied().map(i64::from).collect();
        Box::pin(async move {
            let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(format!(
                "insert into {} (topic, payload, created_at)
                 select 'order.paid', format('{{\"rank\":%s}}', rank)::json,
                        now() + rank * interval '1 second'
                 from unnest($1::bigint[]) with ordinality as r(rank, nth)
                 order by nth
                 returning id",
                self.rows.table().name.quoted(),
            )))
            .bind(ranks)
            .fetch_all(self.queue.store.pool())
            .await
            .expect("a plain insert");
            ids.into_iter().map(ItemId::new).collect()
        })
    }

    fn recovers_first(&self) -> bool {
        self.rows.table().states == States::Derived
    }

    fn dump(&self) -> Soon<'_, String> {
        self.queue.dump()
    }
}
