//! Live: the settings in force, and the task that follows what is set for the cluster. A set that
//! does not fit is refused whole and the old one stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{ClusterSettings, Queue, StoreError};
use tenure_core::{QueueName, Settings, Term};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::round::Group;
use crate::shared::Shared;

/// How often the cluster's settings and queues are looked at.
const EVERY: Duration = Duration::from_secs(3);
/// How often a sender looks: most that it goes by is its own or its endpoints'.
const EVERY_SENDER: Duration = Duration::from_secs(9);
/// How soon it is tried again when the store did not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the store may take to answer.
const WAIT: Duration = Duration::from_secs(10);

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) settings: Settings,
    /// The version of the cluster's settings that they come from.
    pub(crate) version: u64,
    /// The queues to serve, those with one term together.
    pub(crate) groups: Arc<[Group]>,
    /// Whether the cluster has been asked; nothing is claimed before.
    pub(crate) is_followed: bool,
    /// Whether lanes of endpoints are claimed from, as a chooser says.
    pub(crate) is_choosing: bool,
    /// Whether rows are claimed one at a time, when there is a place for them.
    pub(crate) is_one_by_one: bool,
}

impl Live {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            version: 0,
            groups: Arc::new([]),
            is_followed: false,
            is_choosing: false,
            is_one_by_one: false,
        }
    }

    /// The shortest heartbeat of anything that may be claimed.
    pub(crate) fn heartbeat(&self) -> Duration {
        let groups = self.groups.iter().map(|group| group.rhythm.heartbeat);
        groups.min().unwrap_or(self.settings.heartbeat())
    }
}

/// Follows the cluster for as long as the engine runs.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut follower = Follower::default();
    loop {
        let answer = timeout(WAIT, look(&shared)).await;
        let wait = match answer {
            Ok(Ok((cluster, queues))) => {
                shared.vitals.saw_settings(tokio::time::Instant::now());
                follower.apply(&shared, &cluster, &queues);
                every(&shared)
            }
            Ok(Err(error)) => {
                shared.metrics.store_error("settings", &error);
                AGAIN
            }
            Err(_) => {
                shared.metrics.store_silence("settings");
                AGAIN
            }
        };
        sleep(wait).await;
    }
}

fn every(shared: &Shared) -> Duration {
    match shared.config.chooser {
        None => EVERY,
        Some(_) => EVERY_SENDER,
    }
}

async fn look(shared: &Shared) -> Result<(ClusterSettings, Vec<Queue>), StoreError> {
    shared.metrics.call("settings");
    let cluster = shared.store.settings().await?;
    if shared.config.chooser.is_some() {
        // It claims from lanes of endpoints; no queue is its.
        return Ok((cluster, Vec::new()));
    }
    shared.metrics.call("settings");
    let queues = shared.store.queues().await?;
    Ok((cluster, queues))
}

#[derive(Default)]
struct Follower {
    /// The version that was refused last, so that it is told once.
    refused: Option<u64>,
    /// Queues that were asked for and are not there, as they were told last.
    missing: Vec<QueueName>,
}

impl Follower {
    fn apply(&mut self, shared: &Shared, cluster: &ClusterSettings, queues: &[Queue]) {
        let old = Arc::clone(&shared.live.borrow());
        let own = &shared.config.own(&cluster.values);
        let (settings, version) = match own.overlaid(&cluster.values) {
            Ok(settings) => (shared.config.in_force(settings), cluster.version),
            Err(problems) => {
                if self.refused != Some(cluster.version) {
                    self.refused = Some(cluster.version);
                    shared.metrics.settings_refused.increment(1);
                    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                    let problems = problems.join("; ");
                    let version = cluster.version;
                    error!(version, problems, "refused the settings of the cluster");
                }
                (old.settings.clone(), old.version)
            }
        };
        let (settings, groups) = match &shared.config.chooser {
            None => {
                let mut groups = self.groups(&shared.config.queues, &settings, queues);
                if let Some(rhythm) = shared.config.rhythm {
                    for group in &mut groups {
                        group.rhythm = rhythm;
                    }
                }
                (settings, groups.into())
            }
            Some(chooser) => of_deliveries(own, settings, chooser.term()),
        };
        let new = Live {
            settings,
            version,
            groups,
            is_followed: true,
            is_choosing: old.is_choosing,
            is_one_by_one: old.is_one_by_one,
        };
        if new == *old {
            return;
        }
        if new.version != old.version {
            info!(
                version = new.version,
                "took over the settings of the cluster"
            );
        }
        shared.tune(Arc::new(new));
    }

    /// The queues to serve, those with one term together.
    fn groups(
        &mut self,
        wanted: &[QueueName],
        settings: &Settings,
        queues: &[Queue],
    ) -> Vec<Group> {
        let is_there = |name: &&QueueName| queues.iter().any(|queue| queue.name == **name);
        let missing: Vec<QueueName> = wanted
            .iter()
            .filter(|name| !is_there(name))
            .cloned()
            .collect();
        if missing != self.missing {
            for queue in &missing {
                warn!(%queue, "found no such queue; it is served once it is added");
            }
            self.missing = missing;
        }
        let mut groups: BTreeMap<Option<Term>, Vec<QueueName>> = BTreeMap::new();
        for queue in queues {
            if wanted.is_empty() || wanted.contains(&queue.name) {
                let term = queue.term.filter(|term| *term != settings.term);
                groups.entry(term).or_default().push(queue.name.clone());
            }
        }
        groups
            .into_iter()
            .map(|(term, queues)| Group {
                rhythm: term.map_or(settings.rhythm(), |term| settings.rhythm_of(term)),
                queues,
            })
            .collect()
    }
}

/// A sender's places are its own; all that it claims has one term.
fn of_deliveries(own: &Settings, mut settings: Settings, term: Term) -> (Settings, Arc<[Group]>) {
    settings.concurrency = own.concurrency;
    settings.batch = own.batch;
    let group = Group {
        rhythm: settings.rhythm_of(term),
        queues: Vec::new(),
    };
    (settings, Arc::new([group]))
}
