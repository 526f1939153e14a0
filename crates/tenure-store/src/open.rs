//! Opening and migrating a store by its address.

use std::fmt;
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
    /// Versions now.
    pub to: SchemaVersion,
}

impl Migrated {
    /// True if the tables were changed.
    pub const fn is_changed(self) -> bool {
        self.from != self.to.tables
    }
}

/// The versions of a database's tables and of this program. `Display` compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// Version of the tables; 0 if there are none.
    pub tables: u32,
    /// Lowest schema version of a program that can use the tables: the highest number that one of
    /// their migrations asks for.
    pub readable_from: u32,
    /// Schema version of this program.
    pub program: u32,
}

/// The tables in comparison with this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaFit {
    /// A migration is missing.
    Older,
    /// Both have the same version.
    Current,
    /// A newer program has migrated; this one can use the tables nevertheless.
    Newer,
    /// This program would not stay correct on the tables.
    TooNew,
}

impl SchemaVersion {
    /// Compares the tables with this program.
    pub const fn fit(self) -> SchemaFit {
        if self.tables < self.program {
            SchemaFit::Older
        } else if self.tables == self.program {
            SchemaFit::Current
        } else if self.readable_from <= self.program {
            SchemaFit::Newer
        } else {
            SchemaFit::TooNew
        }
    }

    /// True if this program can use the tables as they are.
    pub const fn is_usable(self) -> bool {
        matches!(self.fit(), SchemaFit::Current | SchemaFit::Newer)
    }
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tables, program) = (self.tables, self.program);
        write!(f, "version {tables}")?;
        match self.fit() {
            SchemaFit::Current => Ok(()),
            SchemaFit::Older => write!(f, ", older than version {program} of this program"),
            SchemaFit::Newer => write!(
                f,
                ", newer than version {program} of this program, which can use it"
            ),
            SchemaFit::TooNew => write!(
                f,
                ", newer than version {program} of this program; it needs version {} or later",
                self.readable_from
            ),
        }
    }
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
/// have been migrated, by this program or by a newer one whose tables this program can use.
///
/// # Errors
/// The address is not valid, the database cannot be reached or has tables that this program cannot
/// use, or its feature is off.
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

/// Creates the tables, or brings them to the version of this program. Newer tables that this
/// program can use stay as they are.
///
/// # Errors
/// See [`open`].
pub async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(Migrated {
            from: 0,
            to: SchemaVersion::default(),
        }),
        Address::Sqlite(path) => sqlite_open::migrate(path, config).await,
        Address::Postgres(url) => postgres_open::migrate(url, config).await,
    }
}

/// Reads the versions of the tables and of this program, and changes nothing. A missing SQLite file
/// has no tables, like an empty one.
///
/// # Errors
/// The address is not valid, the database cannot be reached, or its feature is off.
pub async fn schema_version(url: &str, config: &StoreConfig) -> Result<SchemaVersion, StoreError> {
    match Address::parse("migrate", url)? {
        Address::Memory => Ok(SchemaVersion::default()),
        Address::Sqlite(path) => sqlite_open::schema_version(path, config).await,
        Address::Postgres(url) => postgres_open::schema_version(url, config).await,
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
