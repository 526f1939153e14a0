//! A place: a store on its own database, with direct access to its tables.

use std::path::PathBuf;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tenure_store::config::{StoreConfig, Synchronous};
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;
use tenure_store::testing::{Database, migrated};

/// A store with direct access to its tables.
pub(crate) enum Place {
    Postgres {
        store: Box<PostgresStore>,
        pool: PgPool,
        // Fields are dropped in order, so the database is dropped last.
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
        let database = migrated().await;
        let config = StoreConfig::default();
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
        // The data need not survive the process, so writes do not wait for the disk.
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
