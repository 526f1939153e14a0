//! Configuration: its types, and reading it from embedded defaults, then `tenure.toml`, then the
//! environment, then flags.

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

use tenure::operate::QueueRules;
use tenure::publish::TopicPattern;
use tenure::settings::{Setting, duration_text};
use tenure::store::QueueName;
use tenure::{Settings, StoreConfig};

pub(crate) use self::complaint::{Complaint, Place};
pub(crate) use self::key::nearest;
pub(crate) use self::load::{FILE, Override, Sources, examine, load};
pub(crate) use self::webhook::{Hidden, WebhookConfig};
use crate::database::Database;

/// The whole configuration of a process.
/// The publisher that prints events.
const OUTPUT: &str = "output";

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The file that was read, if there is one.
    pub(crate) file: Option<String>,
    pub(crate) database: Database,
    pub(crate) store: StoreConfig,
    /// `serve` brings the schema of a PostgreSQL database up to date.
    pub(crate) migrate_at_start: bool,
    /// Address that `serve` listens on.
    pub(crate) listen: SocketAddr,
    pub(crate) log: Log,
    /// The worker's name; a random suffix makes it the worker's id.
    pub(crate) worker_name: String,
    /// The queues that this process serves; empty means all.
    pub(crate) serve_queues: Vec<QueueName>,
    /// Queues that `serve`, `work` and `jobs run` add at their start.
    pub(crate) queues: Vec<(QueueName, QueueRules)>,
    /// This process's settings; those of the cluster override them.
    pub(crate) settings: Settings,
    pub(crate) publishers: BTreeMap<String, PublisherConfig>,
    /// Routes from topics to publishers; the first match wins.
    pub(crate) routes: Vec<Route>,
    pub(crate) webhook: WebhookConfig,
    /// Probable mistakes that do not keep the program from starting.
    pub(crate) warnings: Vec<String>,
    /// The places of single values; a missing one is a default.
    places: BTreeMap<&'static str, Place>,
}

impl Default for Config {
    /// The values of the embedded file.
    fn default() -> Self {
        let output = OUTPUT.to_owned();
        Self {
            file: None,
            database: Database::default(),
            store: StoreConfig::default(),
            migrate_at_start: false,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            log: Log {
                format: LogFormat::Text,
                level: "info".to_owned(),
            },
            worker_name: "tenure".to_owned(),
            serve_queues: Vec::new(),
            queues: Vec::new(),
            settings: Settings::default(),
            publishers: [(output, PublisherConfig::Lines { path: None })].into(),
            routes: Vec::new(),
            webhook: WebhookConfig::default(),
            warnings: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl Config {
    /// This configuration with one publisher for all topics, in place of its routes.
    pub(crate) fn with_only(&self, name: &str, publisher: PublisherConfig) -> Self {
        let mut config = self.clone();
        config.warnings.clear();
        config.publishers = [(name.to_owned(), publisher)].into();
        config.routes = vec![Route {
            topics: vec![TopicPattern::any()],
            publisher: name.to_owned(),
        }];
        config
    }

    /// This configuration, or with `--print` one that prints every event.
    pub(crate) fn or_print(&self, is_print: bool) -> Self {
        if is_print {
            return self.with_only(OUTPUT, PublisherConfig::Lines { path: None });
        }
        self.clone()
    }

    /// The place where a single value was set.
    pub(crate) fn place(&self, key: &str) -> &Place {
        self.places.get(key).unwrap_or(&Place::Default)
    }

    /// The names of the values that only this process has, in the order of the file; those that a
    /// cluster can set are in [`Setting::ALL`].
    pub(crate) fn own_keys() -> impl Iterator<Item = &'static str> {
        let keys = key::KEYS.into_iter().map(|(key, _)| key);
        keys.filter(|key| Setting::parse(key).is_err())
    }

    /// The text of a value that only this process has; `None` when it is not set.
    pub(crate) fn text_of(&self, key: &str) -> Option<String> {
        let word = |word: &str| Some(word.to_owned());
        match key {
            "database" => Some(self.database.to_string()),
            "store.schema" => word(self.store.schema.as_ref()?.as_str()),
            "store.connections" => Some(self.store.connections.to_string()),
            "store.planner" => word(value::planner_word(self.store.planner)),
            "store.statements" => word(value::statements_word(self.store.statements)),
            "store.synchronous" => word(value::synchronous_word(self.store.synchronous)),
            "store.busy_timeout" => Some(duration_text(self.store.busy_timeout)),
            "migrate.at_start" => Some(self.migrate_at_start.to_string()),
            "server.listen" => Some(self.listen.to_string()),
            "log.format" => word(self.log.format.as_str()),
            "log.level" => Some(self.log.level.clone()),
            "worker.name" => Some(self.worker_name.clone()),
            "worker.queues" => {
                let names: Vec<_> = self.serve_queues.iter().map(QueueName::as_str).collect();
                Some(names.join(", ")).filter(|names| !names.is_empty())
            }
            _ => self.webhook.text_of(key),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    /// A filter such as `info` or `tenure=debug`.
    pub(crate) level: String,
}

/// Log format: text for people, JSON for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublisherConfig {
    /// Events as lines of JSON; to standard output without a path.
    Lines { path: Option<PathBuf> },
    /// A command per event, through `sh -c`.
    Exec {
        command: String,
        /// Limit per command; `None` means as long as the hold lasts.
        timeout: Option<Duration>,
    },
    /// Processes that stay, through `sh -c`: a line per event, and a line per answer.
    ExecLines {
        command: String,
        /// Limit per event; `None` means as long as the hold lasts.
        timeout: Option<Duration>,
        /// Limit of processes; `None` means one per event that is worked on.
        processes: Option<u16>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) topics: Vec<TopicPattern>,
    pub(crate) publisher: String,
}
