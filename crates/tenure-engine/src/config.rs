//! `EngineConfig`: how an engine runs.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{QueueName, Rhythm, Setting, Settings, Term};

use crate::chooser::Chooser;
use crate::chunks::ChunkKeeper;
use crate::engine::Wake;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// This process's own settings; what is set for the cluster stands over them.
    pub settings: Settings,
    /// The queues to serve; empty: all that there are, also those added later.
    pub queues: Vec<QueueName>,
    /// What this process takes part in.
    pub duties: Duties,
    /// Where leases are kept alive.
    pub keeper: Keeper,
    /// The machine, for people who look at the workers.
    pub host: String,
    /// The process, for people who look at the workers.
    pub pid: u32,
    /// Where chance comes from, for a run that must be repeatable; `None`: from nowhere.
    pub seed: Option<u64>,
    /// Chooses the endpoints whose deliveries are claimed; `None`: queues are claimed from. With
    /// one, concurrency and batch are this process's own, whatever is set for the cluster: they
    /// count calls, not the work of handlers.
    pub chooser: Option<Arc<dyn Chooser>>,
    /// The engine that sends what this one fans out, if it runs in the same process: it is woken.
    pub sender: Option<Wake>,
    /// How leases are kept, whatever is set for the cluster; `None`: as the settings say. With one,
    /// concurrency and batch are this process's own, too: what is set for the work on events says
    /// nothing of longer work.
    pub rhythm: Option<Rhythm>,
    /// How the rows of a lease table are claimed. Events know neither kinds nor such a recovery.
    pub rows: RowClaims,
    /// The chunks that handlers have in hand beside their jobs: kept alive where the jobs are.
    pub chunks: Option<Arc<ChunkKeeper>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            queues: Vec::new(),
            duties: Duties::default(),
            keeper: Keeper::default(),
            host: "localhost".to_owned(),
            pid: std::process::id(),
            seed: None,
            chooser: None,
            sender: None,
            rhythm: None,
            rows: RowClaims::default(),
            chunks: None,
        }
    }
}

impl EngineConfig {
    /// This process's own settings where these are set for the cluster: with the usual rhythm of
    /// the table, unless somebody has said another.
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
            // A stop need not wait longer because leases are longer.
            shutdown_timeout: Some(own.shutdown_timeout()),
            ..own.clone()
        };
        // What is set of the longest hold or the reaper may not fit a longer term, and it was said.
        if is_set || usual.overlaid(cluster).is_err() {
            return own.clone();
        }
        usual
    }

    /// The settings that come into force when these are set.
    pub(crate) fn in_force(&self, mut settings: Settings) -> Settings {
        let Some(rhythm) = self.rhythm else {
            return settings;
        };
        let term = rhythm.term.length();
        // A stop need not wait longer because leases are longer.
        settings.shutdown_timeout = Some(settings.shutdown_timeout().min(term));
        settings.reaper_interval = settings.reaper_interval.filter(|every| *every < term);
        settings.term = rhythm.term;
        settings.heartbeat = Some(rhythm.heartbeat);
        settings.max_hold = Some(rhythm.max_hold);
        settings.concurrency = self.settings.concurrency;
        settings.batch = self.settings.batch;
        settings
    }

    /// Whether rows are claimed when there is a place for them, and one at a time.
    pub(crate) fn is_one_by_one(&self) -> bool {
        self.rows.recovery == Recovery::InClaim && self.settings.batch == 1
    }
}

/// How the rows of a lease table are claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowClaims {
    /// Their table, for people who look at the workers; `None`: events are claimed. A worker on
    /// rows serves no queue.
    pub table: Option<String>,
    /// Only rows of these kinds; empty: of every kind.
    pub kinds: Vec<String>,
    /// Who takes back what has lapsed.
    pub recovery: Recovery,
    /// The term of their leases and how often these are renewed, unless the settings of this
    /// process or of the cluster say one; `None`: the settings alone say it.
    pub usual: Option<(Term, Duration)>,
}

/// Who takes back what has lapsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The reaper.
    #[default]
    ByReaper,
    /// Each claim, before it looks: no reaper is needed. For tables without a status. With a batch
    /// of one, rows are claimed only when there is a place for them, and none is asked for alone.
    InClaim,
}

/// What a process takes part in beside its own work. Every process does everything by default:
/// there is no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duties {
    /// Ends lapsed leases. Without a reaper anywhere, the work of a dead worker stays stuck.
    pub reaper: Duty,
    /// Deletes what is past its retention.
    pub pruner: Duty,
    /// Takes the next steps of replays that are on record.
    pub replayer: Duty,
}

impl Default for Duties {
    fn default() -> Self {
        Self {
            reaper: Duty::Done,
            pruner: Duty::Done,
            replayer: Duty::Done,
        }
    }
}

/// Whether a process does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It does.
    Done,
    /// Others do.
    Left,
}

/// Where leases are kept alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeper {
    /// On a thread of its own, so that a handler that blocks its executor cannot stop the
    /// heartbeat.
    #[default]
    OwnThread,
    /// Among the other tasks: for tests with paused time.
    SameRuntime,
}
