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
    /// PostgreSQL: names of prepared statements, for connections through a pooler.
    pub statements: Statements,
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
            statements: Statements::default(),
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
        }
    }
}

/// Source of the settings that make PostgreSQL plan Tenure's statements once and use indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// The store sets them: for the connection, or for each transaction behind a pooler.
    #[default]
    Connection,
    /// The database role has them. Without them statements are correct, but slower.
    Role,
}

/// Names of prepared statements on PostgreSQL.
///
/// A statement with a name is planned once and takes one round trip, but behind a pooler in
/// transaction mode the next transaction may run on another server connection, where another client
/// has given the same name to its own statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statements {
    /// Each connection is examined when it opens: names are used if the session belongs to the
    /// connection, or if the pooler keeps the names of its clients apart.
    #[default]
    Auto,
    /// Names are always used; for a pooler in session mode. A pooler that shares its sessions and
    /// does not keep the names apart is refused.
    Prepared,
    /// Names are never used, and every statement runs in a transaction: correct with every pooler.
    Unnamed,
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
