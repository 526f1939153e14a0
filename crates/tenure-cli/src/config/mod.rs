//! Config: everything that the program can be told, as types. Embedded defaults, then
//! `tenure.toml`, then the environment, then flags.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tenure::{QueueName, Settings, StoreConfig, Term, TopicPattern};

use crate::database::Database;

/// Everything that the program can be told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The database.
    pub(crate) database: Database,
    /// How it is opened.
    pub(crate) store: StoreConfig,
    /// Where `serve` listens.
    pub(crate) listen: SocketAddr,
    /// How the program logs.
    pub(crate) log: Log,
    /// The worker's name; its id has a random part behind it.
    pub(crate) worker_name: String,
    /// The queues that this process serves; empty: all.
    pub(crate) serve_queues: Vec<QueueName>,
    /// Queues that `serve` and `work` declare when they start.
    pub(crate) queues: Vec<(QueueName, Option<Term>)>,
    /// This process's settings; what is set for the cluster stands over them.
    pub(crate) settings: Settings,
    /// The publishers, by name.
    pub(crate) publishers: BTreeMap<String, PublisherConfig>,
    /// Which topics go to which publisher; the first that takes a topic has it.
    pub(crate) routes: Vec<Route>,
}

/// How the program logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// For people or for programs.
    pub(crate) format: LogFormat,
    /// What is logged, such as `info` or `tenure=debug`.
    pub(crate) level: String,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// One publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublisherConfig {
    /// Events as lines of JSON; to the output when there is no path.
    Lines { path: Option<PathBuf> },
    /// A command per event, through `sh -c`.
    Exec {
        command: String,
        /// How long one may run; `None`: as long as the hold lasts.
        timeout: Option<Duration>,
    },
}

/// Which topics go to which publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) topics: Vec<TopicPattern>,
    pub(crate) publisher: String,
}
