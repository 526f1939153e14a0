//! `StoreConfig`: options for opening a store.

use std::time::Duration;

use tenure_core::Identifier;

/// Options for opening a store. The defaults suit most programs.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// PostgreSQL: the schema with Tenure's tables; `None` for the first schema of the search path.
    pub schema: Option<Identifier>,
    /// PostgreSQL: maximum number of connections. Default 10.
    pub connections: u32,
    /// PostgreSQL: number of these connections reserved for the companion that renews leases.
    /// Default 0.
    pub companion: u32,
    /// PostgreSQL: source of the planner's settings.
    pub planner: Planner,
    /// SQLite: durability of a commit. Default full.
    pub synchronous: Synchronous,
    /// SQLite: time that a write waits while another process writes to the file. Default 5 s.
    pub busy_timeout: Duration,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            schema: None,
            connections: 10,
            companion: 0,
            planner: Planner::default(),
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
        }
    }
}

/// Source of the settings that make PostgreSQL plan Tenure's statements once and use indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// Each connection sets them when it opens. Some connection poolers refuse that.
    #[default]
    Connection,
    /// The database role has them. Without them statements are correct, but slower.
    Role,
}

/// Durability of a commit on SQLite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// The commit is on the disk: a power failure loses no accepted write.
    #[default]
    Full,
    /// The commit is with the operating system: a power failure may lose the last commits.
    Normal,
}
