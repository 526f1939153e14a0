//! Config: everything that the program can be told, as types, and reading it. Embedded defaults,
//! then `tenure.toml`, then the environment, then flags.

mod check;
mod complaint;
mod file;
mod key;
mod load;
mod table;
mod value;
mod webhook;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure::{QueueName, Setting, Settings, StoreConfig, Term, TopicPattern, duration_text};

pub(crate) use self::complaint::{Complaint, Place};
pub(crate) use self::key::nearest;
pub(crate) use self::load::{FILE, Override, Sources, load};
pub(crate) use self::webhook::{Hidden, WebhookConfig};
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
    /// Webhooks: whether and how this process sends them.
    pub(crate) webhook: WebhookConfig,
    /// What looks like an oversight and is none that stops the program.
    pub(crate) remarks: Vec<String>,
    /// Where each single value was set; those that are not here are defaults.
    places: BTreeMap<&'static str, Place>,
}

impl Default for Config {
    /// What the embedded file says, too.
    fn default() -> Self {
        let output = "output".to_owned();
        Self {
            database: Database::default(),
            store: StoreConfig::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            log: Log {
                format: LogFormat::Text,
                level: "info".to_owned(),
            },
            worker_name: "tenure".to_owned(),
            serve_queues: Vec::new(),
            queues: Vec::new(),
            settings: Settings::default(),
            publishers: [(output.clone(), PublisherConfig::Lines { path: None })].into(),
            routes: vec![Route {
                topics: vec![TopicPattern::any()],
                publisher: output,
            }],
            webhook: WebhookConfig::default(),
            remarks: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Where a single value was set.
    pub(crate) fn place(&self, key: &str) -> &Place {
        self.places.get(key).unwrap_or(&Place::Default)
    }

    /// The names of the single values that only this process has, in the order of the file: those
    /// that a cluster can set are in [`Setting::ALL`].
    pub(crate) fn own_keys() -> impl Iterator<Item = &'static str> {
        let keys = key::KEYS.into_iter().map(|(key, _)| key);
        keys.filter(|key| Setting::parse(key).is_err())
    }

    /// A value that only this process has, for people; `None` when it is not set.
    pub(crate) fn shown(&self, key: &str) -> Option<String> {
        let word = |word: &str| Some(word.to_owned());
        match key {
            "database" => Some(self.database.to_string()),
            "store.schema" => word(self.store.schema.as_ref()?.as_str()),
            "store.connections" => Some(self.store.connections.to_string()),
            "store.planner" => word(value::planner_word(self.store.planner)),
            "store.synchronous" => word(value::synchronous_word(self.store.synchronous)),
            "store.busy_timeout" => Some(duration_text(self.store.busy_timeout)),
            "server.listen" => Some(self.listen.to_string()),
            "log.format" => word(self.log.format.as_str()),
            "log.level" => Some(self.log.level.clone()),
            "worker.name" => Some(self.worker_name.clone()),
            "worker.queues" => {
                let names: Vec<_> = self.serve_queues.iter().map(QueueName::as_str).collect();
                Some(names.join(", ")).filter(|names| !names.is_empty())
            }
            _ => self.webhook.shown(key),
        }
    }
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

impl LogFormat {
    /// As a file writes it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
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
