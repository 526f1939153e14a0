//! Temporary PostgreSQL servers, clusters, poolers and databases, and SQLite files, for the tests
//! of all crates.

#[cfg(feature = "postgres")]
mod cluster;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod further;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_pool;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use tenure_core::testing::Extent;

#[cfg(all(feature = "postgres", feature = "sqlite"))]
pub use further::migrate_further;

#[cfg(feature = "postgres")]
pub use cluster::Cluster;
#[cfg(feature = "postgres")]
pub use pooler::{PoolMode, Pooler};
#[cfg(feature = "postgres")]
pub use postgres::{Database, Server, migrated, postgres};
#[cfg(feature = "sqlite")]
pub use sqlite::migrated_file;
