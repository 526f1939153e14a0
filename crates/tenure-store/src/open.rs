//! From an address to a store.

use std::path::Path;
use std::sync::Arc;

use tenure_core::store::{Rows, Store, StoreError, StoreErrorKind, Tables};

#[cfg(not(feature = "postgres"))]
use crate::absent as postgres_door;
#[cfg(not(feature = "sqlite"))]
use crate::absent as sqlite_door;
use crate::config::StoreConfig;
use crate::memory::{MemoryStore, SystemClock};
#[cfg(feature = "postgres")]
use crate::postgres::{PostgresStore, door as postgres_door};
#[cfg(feature = "sqlite")]
use crate::sqlite::{SqliteStore, door as sqlite_door};

/// From which version of the tables to which a migration went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version that was found; 0: no tables.
    pub from: u32,
    /// The version that is there now.
    pub to: u32,
}

/// A store of any kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum Opened {
    /// In memory: gone with the program.
    Memory(Arc<MemoryStore>),
    /// In an SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<SqliteStore>),
    /// On PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Arc<PostgresStore>),
}

impl Opened {
    /// The store, whatever its kind.
    pub fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store.as_ref(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.as_ref(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.as_ref(),
        }
    }

    /// The store, to be shared.
    pub fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::<MemoryStore>::clone(store),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => Arc::<SqliteStore>::clone(store),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// The tables of the user's own in this database; `None`: there can be none.
    pub fn tables(&self) -> Option<&dyn Tables> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => Some(store.as_ref()),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Some(store.as_ref()),
        }
    }

    /// The same database for the heartbeat, so that it never waits behind other work: on PostgreSQL
    /// through up to `connections` of its own, made when they are first used and on the runtime
    /// that uses them; elsewhere the same store.
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

/// A store and the rows of one table in it.
pub type Companion = (Arc<dyn Store>, Arc<dyn Rows>);

impl Opened {
    /// As [`Opened::companion`], and beside it these rows through the same connections.
    ///
    /// # Errors
    /// The description is no table's.
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

/// What an address names.
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
            // The address itself is not repeated: it may hold a password.
            _ => Err(StoreError::new(
                verb,
                StoreErrorKind::Invalid,
                "the address names no database",
            )
            .hint("expected sqlite://FILE, postgres://USER@HOST/DATABASE or memory:")),
        }
    }
}

/// Opens the store that an address names. An SQLite file is created and migrated by itself; a
/// PostgreSQL database must have been migrated.
///
/// # Errors
/// The address is not valid, the database cannot be reached, is of another version, or this program
/// was built without it.
pub async fn open(url: &str, config: &StoreConfig) -> Result<Opened, StoreError> {
    match Address::parse("open", url)? {
        Address::Memory => {
            let store = MemoryStore::new(Arc::new(SystemClock));
            Ok(Opened::Memory(Arc::new(store)))
        }
        Address::Sqlite(path) => sqlite_door::open(path, config).await,
        Address::Postgres(url) => postgres_door::open(url, config).await,
    }
}

/// Creates the tables, or brings them to the version of this program.
///
/// # Errors
/// As [`open`].
pub async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(Migrated { from: 0, to: 0 }),
        Address::Sqlite(path) => sqlite_door::migrate(path, config).await,
        Address::Postgres(url) => postgres_door::migrate(url, config).await,
    }
}

/// Whether [`open`] would leave the tables of this database as they are: it migrates an SQLite file
/// by itself, which a command that promises to change nothing must not do.
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

/// The SQL that [`migrate`] would run on an empty database of this kind, for an administrator to
/// apply.
///
/// # Errors
/// The address is not valid, or this program was built without that database.
pub fn migration_sql(url: &str) -> Result<String, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(String::new()),
        Address::Sqlite(_) => sqlite_door::migration_sql(),
        Address::Postgres(_) => postgres_door::migration_sql(),
    }
}
