//! A place: a store on a database of its own, and a way into its tables past the store.

use std::path::PathBuf;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tenure_store::config::{StoreConfig, Synchronous};
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;
use tenure_store::testing::{Database, postgres};

/// A store, and a way to look into its tables by hand.
pub(crate) enum Place {
    Postgres {
        store: Box<PostgresStore>,
        pool: PgPool,
        // Dropped last: a field is dropped after those before it.
        database: Box<Database>,
    },
    Sqlite {
        store: SqliteStore,
        path: PathBuf,
        _folder: tempfile::TempDir,
    },
}

impl Place {
    pub(crate) async fn both() -> [Self; 2] {
        [Self::postgres().await, Self::sqlite().await]
    }

    pub(crate) async fn postgres() -> Self {
        let database = postgres().await;
        let config = StoreConfig::default();
        PostgresStore::migrate(&database.url, &config)
            .await
            .unwrap();
        let pool = PgPoolOptions::new().max_connections(8);
        Self::Postgres {
            store: Box::new(PostgresStore::open(&database.url, &config).await.unwrap()),
            pool: pool.connect(&database.url).await.unwrap(),
            database: Box::new(database),
        }
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("place.db");
        // Nothing here outlives its process, so nothing waits for the disk.
        let config = StoreConfig {
            synchronous: Synchronous::Normal,
            ..StoreConfig::default()
        };
        Self::Sqlite {
            store: SqliteStore::open(&path, &config).await.unwrap(),
            path,
            _folder: folder,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "PostgreSQL",
            Self::Sqlite { .. } => "SQLite",
        }
    }
}
