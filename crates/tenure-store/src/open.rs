//! Opening and migrating a store by its address.

use std::path::Path;
use std::sync::Arc;

use tenure_core::store::{Rows, Store, StoreError, StoreErrorKind, Tables};

use crate::config::StoreConfig;
#[cfg(not(feature = "postgres"))]
use crate::feature_off as postgres_open;
#[cfg(not(feature = "sqlite"))]
use crate::feature_off as sqlite_open;
use crate::memory::{MemoryStore, SystemClock};
#[cfg(feature = "postgres")]
use crate::postgres::{PostgresStore, open as postgres_open};
#[cfg(feature = "sqlite")]
use crate::sqlite::{SqliteStore, open as sqlite_open};

/// Versions of the tables before and after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// Version before; 0 if there were no tables.
    pub from: u32,
    /// Version now.
    pub to: u32,
}

/// A store of any kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum Opened {
    /// In memory, lost with the process.
    Memory(Arc<MemoryStore>),
    /// In an SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<SqliteStore>),
    /// On PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Arc<PostgresStore>),
}

impl Opened {
    /// The store, independent of its kind.
    pub fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store.as_ref(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.as_ref(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.as_ref(),
        }
    }

    /// The store as a shared pointer.
    pub fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::<MemoryStore>::clone(store),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => Arc::<SqliteStore>::clone(store),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// Port to adopted tables; `None` in memory.
    pub fn tables(&self) -> Option<&dyn Tables> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => Some(store.as_ref()),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Some(store.as_ref()),
        }
    }

    /// Returns a handle for the heartbeat, so that the heartbeat never waits behind other work. On
    /// PostgreSQL it has up to `connections` connections of its own, opened at first use on the
    /// runtime that uses them; elsewhere it is the same store.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "only PostgreSQL has connections to count")
    )]
    pub fn companion(&self, connections: u32) -> Arc<dyn Store> {
        match self {
            Self::Memory(_) => self.shared(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => self.shared(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Arc::new(store.companion(connections)),
        }
    }
}

/// A store and the rows of one of its tables.
pub type Companion = (Arc<dyn Store>, Arc<dyn Rows>);

impl Opened {
    /// Like [`Opened::companion`]; also returns these rows, on the same connections.
    ///
    /// # Errors
    /// The description of the table is not valid.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "only PostgreSQL has connections to count")
    )]
    pub fn companion_of(
        &self,
        connections: u32,
        rows: &Arc<dyn Rows>,
    ) -> Result<Companion, StoreError> {
        match self {
            Self::Memory(_) => Ok((self.shared(), Arc::clone(rows))),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Ok((self.shared(), Arc::clone(rows))),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => {
                let store = store.companion(connections);
                let rows = store.rows_unasked(rows.table().clone())?;
                Ok((Arc::new(store), Arc::new(rows)))
            }
        }
    }
}

/// A parsed address.
enum Address<'a> {
    Memory,
    Sqlite(&'a Path),
    Postgres(&'a str),
}

impl<'a> Address<'a> {
    fn parse(verb: &'static str, url: &'a str) -> Result<Self, StoreError> {
        if url == "memory:" {
            return Ok(Self::Memory);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url));
        }
        let path = url
            .strip_prefix("sqlite://")
            .or_else(|| url.strip_prefix("sqlite:"));
        match path {
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(Path::new(path))),
            // The message does not repeat the address: it may contain a password.
            _ => Err(StoreError::new(
                verb,
                StoreErrorKind::Invalid,
                "the address is not that of a database",
            )
            .with_hint("expected sqlite://FILE, postgres://USER@HOST/DATABASE or memory:")),
        }
    }
}

/// Opens a store by its address. Creates and migrates an SQLite file; a PostgreSQL database must
/// have been migrated.
///
/// # Errors
/// The address is not valid, the database cannot be reached or has another version, or its feature
/// is off.
pub async fn open(url: &str, config: &StoreConfig) -> Result<Opened, StoreError> {
    match Address::parse("open", url)? {
        Address::Memory => {
            let store = MemoryStore::new(Arc::new(SystemClock));
            Ok(Opened::Memory(Arc::new(store)))
        }
        Address::Sqlite(path) => sqlite_open::open(path, config).await,
        Address::Postgres(url) => postgres_open::open(url, config).await,
    }
}

/// Creates the tables, or brings them to the version of this program.
///
/// # Errors
/// See [`open`].
pub async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(Migrated { from: 0, to: 0 }),
        Address::Sqlite(path) => sqlite_open::migrate(path, config).await,
        Address::Postgres(url) => postgres_open::migrate(url, config).await,
    }
}

/// Returns false if [`open`] would migrate an existing SQLite file, which a read-only command must
/// not do.
///
/// # Errors
/// The address is not valid, or the file cannot be read.
pub fn is_migrated(url: &str) -> Result<bool, StoreError> {
    match Address::parse("migrate", url)? {
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) if path.exists() => crate::sqlite::is_current(path),
        Address::Memory | Address::Sqlite(_) | Address::Postgres(_) => Ok(true),
    }
}

/// The SQL that [`migrate`] would run on an empty database, for an administrator to apply.
///
/// # Errors
/// The address is not valid, or the feature of that database is off.
pub fn migration_sql(url: &str) -> Result<String, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(String::new()),
        Address::Sqlite(_) => sqlite_open::migration_sql(),
        Address::Postgres(_) => postgres_open::migration_sql(),
    }
}
