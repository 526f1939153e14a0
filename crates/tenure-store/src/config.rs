//! `StoreConfig`: how a store is opened.

use std::time::Duration;

use tenure_core::Identifier;

/// How a store is opened. The defaults are right for most.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// PostgreSQL: the schema that holds Tenure's tables; `None`: the first of the search path.
    pub schema: Option<Identifier>,
    /// PostgreSQL: at most this many connections. Default 10.
    pub connections: u32,
    /// PostgreSQL: of these, so many are kept for a companion that keeps leases alive. Default 0.
    pub companion: u32,
    /// PostgreSQL: where the planner's settings come from.
    pub planner: Planner,
    /// SQLite: when a commit counts as safe. Default full.
    pub synchronous: Synchronous,
    /// SQLite: how long a write waits while another process writes to the file. Default 5 s.
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

/// Where the settings come from that make PostgreSQL plan our statements once and by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// Each connection asks for them when it starts. Some poolers refuse that.
    #[default]
    Connection,
    /// They are set on the role that Tenure connects as, or not at all: correct, only slower.
    Role,
}

/// When SQLite counts a commit as safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// When it is on the disk: nothing that was accepted is lost when the power fails.
    #[default]
    Full,
    /// When it is with the operating system: a power failure may lose the last commits.
    Normal,
}
