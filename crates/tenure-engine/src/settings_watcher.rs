//! Active settings, and the task that follows the cluster's settings and queues. Invalid settings
//! are refused as a whole, and the old ones stay in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{ClusterSettings, Queue, StoreError};
use tenure_core::{Event, Item, QueueName, RetryRules, Settings, Term};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::metrics::SETTINGS_REFUSED;
use crate::round::QueueGroup;
use crate::shared::Shared;

const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Poll interval of a sender. It is longer, because most settings of a sender are its own or belong
/// to its endpoints.
const SENDER_POLL_INTERVAL: Duration = Duration::from_secs(9);
/// Delay after the store failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The effective settings of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActiveSettings {
    pub(crate) settings: Settings,
    /// Version of the cluster's settings that they include.
    pub(crate) version: u64,
    /// Queues to serve, grouped by term.
    pub(crate) groups: Arc<[QueueGroup]>,
    /// Retry rules of the queues that have their own.
    pub(crate) retries: Arc<BTreeMap<QueueName, RetryRules>>,
    /// The cluster's settings were read; the worker claims nothing before that.
    pub(crate) is_loaded: bool,
    /// Claims come from endpoint lanes that a chooser selects.
    pub(crate) is_choosing: bool,
    /// Rows are claimed one at a time, only for a free executor.
    pub(crate) is_one_by_one: bool,
}

impl ActiveSettings {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Retry rules of the item's queue.
    pub(crate) fn retry_of(&self, item: &Item) -> RetryRules {
        if self.retries.is_empty() {
            return RetryRules::default();
        }
        let queue = item.content.event().map(Event::queue);
        let rules = queue.and_then(|queue| self.retries.get(queue));
        rules.copied().unwrap_or_default()
    }

    /// Shortest heartbeat of all queues.
    pub(crate) fn heartbeat(&self) -> Duration {
        let groups = self.groups.iter().map(|group| group.timing.heartbeat);
        groups.min().unwrap_or(self.settings.heartbeat())
    }
}

/// Follows the cluster until the engine stops.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut watcher = SettingsWatcher::default();
    loop {
        let mut wait = RETRY_DELAY;
        if let Ok((cluster, queues)) = read_cluster(&shared).await {
            shared.vitals.settings_read(Instant::now());
            watcher.apply(&shared, &cluster, &queues);
            wait = match shared.config.chooser {
                None => POLL_INTERVAL,
                Some(_) => SENDER_POLL_INTERVAL,
            };
        }
        sleep(wait).await;
    }
}

/// Reads the settings; also reads the queues, unless a sender claims from endpoint lanes or the
/// worker claims rows.
async fn read_cluster(shared: &Shared) -> Result<(ClusterSettings, Vec<Queue>), StoreError> {
    let until = Instant::now() + STORE_TIMEOUT;
    let cluster = shared.store.settings();
    let cluster = shared.call("settings", until, cluster).await?;
    if shared.config.is_without_queues() {
        return Ok((cluster, Vec::new()));
    }
    let queues = shared.store.queues();
    let queues = shared.call("settings", until, queues).await?;
    Ok((cluster, queues))
}

#[derive(Default)]
struct SettingsWatcher {
    /// Last refused version, so that it is logged once.
    refused: Option<u64>,
    /// Configured queues that do not exist, as logged last.
    missing: Vec<QueueName>,
}

impl SettingsWatcher {
    fn apply(&mut self, shared: &Shared, cluster: &ClusterSettings, queues: &[Queue]) {
        let old = Arc::clone(&shared.live.borrow());
        let own = &shared.config.own(&cluster.values);
        let (settings, version) = match own.overlaid(&cluster.values) {
            Ok(settings) => (shared.config.in_force(settings), cluster.version),
            Err(problems) => {
                if self.refused != Some(cluster.version) {
                    self.refused = Some(cluster.version);
                    shared.metrics.count(SETTINGS_REFUSED, &[], 1);
                    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                    let problems = problems.join("; ");
                    let version = cluster.version;
                    error!(version, problems, "refused the cluster settings");
                }
                (old.settings.clone(), old.version)
            }
        };
        let own_retries = |queue: &&Queue| queue.rules.retry != RetryRules::default();
        let retries = queues.iter().filter(own_retries);
        let retries = retries.map(|queue| (queue.name.clone(), queue.rules.retry));
        let new = ActiveSettings {
            groups: self.groups(shared, &settings, queues).into(),
            retries: Arc::new(retries.collect()),
            settings,
            version,
            is_loaded: true,
            ..(*old).clone()
        };
        if new == *old {
            return;
        }
        if new.version != old.version {
            info!(version = new.version, "applied the cluster settings");
        }
        shared.tune(Arc::new(new));
    }

    /// Groups the queues to serve by term. Deliveries and rows have one group, and claims on rows
    /// ignore its queue.
    fn groups(
        &mut self,
        shared: &Shared,
        settings: &Settings,
        queues: &[Queue],
    ) -> Vec<QueueGroup> {
        let config = &shared.config;
        if config.is_without_queues() {
            let chosen = config.chooser.as_ref();
            let timing = chosen.map(|chooser| settings.timing_of(chooser.term()));
            return vec![QueueGroup {
                timing: timing.unwrap_or(settings.timing()),
                queues: vec![QueueName::default(); usize::from(chosen.is_none())],
            }];
        }
        let wanted = &config.queues;
        let is_there = |name: &&QueueName| queues.iter().any(|queue| queue.name == **name);
        let missing: Vec<QueueName> = wanted
            .iter()
            .filter(|name| !is_there(name))
            .cloned()
            .collect();
        if missing != self.missing {
            for queue in &missing {
                warn!(%queue, "the queue does not exist; it is served once it is added");
            }
            self.missing = missing;
        }
        let mut groups: BTreeMap<Option<Term>, Vec<QueueName>> = BTreeMap::new();
        for queue in queues {
            if wanted.is_empty() || wanted.contains(&queue.name) {
                let term = queue.rules.term.filter(|term| *term != settings.term);
                groups.entry(term).or_default().push(queue.name.clone());
            }
        }
        groups
            .into_iter()
            .map(|(term, queues)| QueueGroup {
                timing: term.map_or(settings.timing(), |term| settings.timing_of(term)),
                queues,
            })
            .collect()
    }
}
