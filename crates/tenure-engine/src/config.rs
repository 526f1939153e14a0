//! Configuration of an engine: settings, queues or rows to claim from, duties.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::LeaseStore;
use tenure_core::{LeaseTiming, QueueName, Sampling, Setting, Settings, Term, Tracer};

use crate::chooser::Chooser;
use crate::chunk_renewer::ChunkRenewer;
use crate::engine::Wake;

/// Configuration of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Settings of this process; the cluster's settings override them.
    pub settings: Settings,
    /// Queues to serve; empty: all, including those added later.
    pub queues: Vec<QueueName>,
    /// Background duties of this process.
    pub duties: Duties,
    /// Thread or runtime of the keeper's tasks.
    pub keeper: Keeper,
    /// Host name in `tenure workers`; `None`: the name of this machine on Linux, otherwise
    /// `localhost`.
    pub host: Option<String>,
    /// Seed of the random source, for repeatable runs; `None`: random.
    pub seed: Option<u64>,
    /// Selects the endpoints whose deliveries are claimed; `None`: the engine claims from queues.
    /// With a chooser, the engine ignores the cluster's concurrency and batch and uses those of
    /// this process: they count calls, not handlers.
    pub chooser: Option<Arc<dyn Chooser>>,
    /// Sender in the same process, woken after each fan-out.
    pub sender: Option<Wake>,
    /// Lease timing that overrides the cluster's; `None`: the settings decide. If it is set, the
    /// engine also uses the concurrency and batch of this process, because the cluster's are meant
    /// for events and do not suit longer work.
    pub timing: Option<LeaseTiming>,
    /// Claims on the rows of a lease table. Claims of events have neither kinds nor recovery.
    pub rows: RowClaims,
    /// Renewer of the chunks that handlers hold besides their jobs; it runs on the keeper.
    pub chunks: Option<Arc<ChunkRenewer>>,
    /// Share of the attempts that get a span.
    pub sampling: Sampling,
    /// Takes the spans of sampled attempts; `None`: they are spans of the crate `tracing` only.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl EngineConfig {
    /// Settings of this process, with the table's usual timing unless this process or the cluster
    /// sets a timing.
    pub(crate) fn own(&self, cluster: &[(String, String)]) -> Settings {
        let own = &self.settings;
        let Some((term, heartbeat)) = self.rows.usual else {
            return own.clone();
        };
        let of_leases = [Setting::Term, Setting::Heartbeat].map(Setting::as_str);
        let is_set = own.term != Term::STANDARD
            || own.heartbeat.is_some()
            || cluster
                .iter()
                .any(|(name, _)| of_leases.contains(&name.as_str()));
        let usual = Settings {
            term,
            heartbeat: Some(heartbeat),
            // The shutdown timeout does not grow with the term.
            shutdown_timeout: Some(own.shutdown_timeout()),
            ..own.clone()
        };
        // If an explicit `max_hold` or reaper interval does not fit the longer term, this process's
        // own settings apply unchanged.
        if is_set || usual.overlaid(cluster).is_err() {
            return own.clone();
        }
        usual
    }

    /// True if claims are on deliveries or rows.
    pub(crate) fn is_without_queues(&self) -> bool {
        self.chooser.is_some() || !matches!(self.rows.leases, Leases::Events)
    }

    /// The effective settings: `settings` with the overrides of this configuration.
    pub(crate) fn in_force(&self, mut settings: Settings) -> Settings {
        if self.chooser.is_some() || self.timing.is_some() {
            // The cluster's values are meant for handlers of events.
            settings.concurrency = self.settings.concurrency;
            settings.batch = self.settings.batch;
        }
        let Some(timing) = self.timing else {
            return settings;
        };
        let term = timing.term.length();
        // The shutdown timeout does not grow with the term.
        settings.shutdown_timeout = Some(settings.shutdown_timeout().min(term));
        settings.reaper_interval = settings.reaper_interval.filter(|every| *every < term);
        settings.term = timing.term;
        settings.heartbeat = Some(timing.heartbeat);
        settings.max_hold = Some(timing.max_hold);
        settings
    }

    /// True if rows are claimed one at a time, and only for a free executor.
    pub(crate) fn is_one_by_one(&self) -> bool {
        self.rows.recovery == Recovery::InClaim && self.settings.batch == 1
    }
}

/// Claims on the rows of a lease table.
#[derive(Clone, Debug, Default)]
pub struct RowClaims {
    /// Leases to claim, renew, settle and reap.
    pub leases: Leases,
    /// Table name in `tenure workers`; `None`: events are claimed. A worker on rows serves no
    /// queue.
    pub table: Option<String>,
    /// Kinds to claim; empty: every kind.
    pub kinds: Vec<String>,
    /// Component that ends lapsed leases.
    pub recovery: Recovery,
    /// Default term and heartbeat of the leases, unless the settings of this process or of the
    /// cluster set them; `None`: the settings decide.
    pub usual: Option<(Term, Duration)>,
}

/// Leases that an engine works on. Everything else, such as settings and the worker registry, comes
/// from its store.
#[derive(Clone, Debug, Default)]
pub enum Leases {
    /// Events and deliveries of the store.
    #[default]
    Events,
    /// Jobs of the store.
    Jobs,
    /// Rows of a lease table, and the same rows through the connections of the keeper. Rows have no
    /// queues: a pause or a term for events does not affect them.
    Rows(Arc<dyn LeaseStore>, Arc<dyn LeaseStore>),
}

/// Component that ends lapsed leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The reaper.
    #[default]
    ByReaper,
    /// Each claim ends lapsed leases first, so no reaper is needed. For tables without a status.
    /// With a batch of one, the worker claims a row only for a free executor and makes no isolated
    /// claims.
    InClaim,
}

/// Background duties of a process. By default every process does everything: there is no leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Ends lapsed leases. Without any reaper, the items of a dead worker stay claimed.
    pub reaper: Duty,
    /// Deletes items past their retention.
    pub pruner: Duty,
    /// Runs the next steps of bulk replays.
    pub replayer: Duty,
}

/// Assignment of a duty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// This process performs it.
    #[default]
    Done,
    /// This process leaves it to other processes.
    Left,
}

/// Thread or runtime of the keeper's tasks: heartbeat, watchdog, registry and chunk renewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeper {
    /// A thread of its own, so that a handler that blocks its thread cannot stop renewals.
    #[default]
    OwnThread,
    /// The current runtime: for tests with paused time.
    SameRuntime,
}
