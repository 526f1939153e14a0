//! `RowStore`: a store for an engine that works on the rows of a lease table. Leases and operator
//! commands go to the table; settings, the worker registry and everything else to the base store.
//!
//! Rows have no queues, keys, deliveries or bulk replays.

use std::fmt;
use std::sync::Arc;

use tenure_core::store::{
    Answer, Bury, ChangeSettings, Claim, Cluster, ClusterSettings, Counts, Enqueued, Examine,
    Filter, Finding, Intake, Jobs, KeyFilter, KeyRecord, Keys, LeaseStore, Operate, Page, Pause,
    ProvidesJobs, ProvidesReplays, ProvidesWebhooks, ProvidesWorkLeases, Prune, Pruned, Pruner,
    Queue, Queues, Reap, Reaped, Renew, Renewed, Replay, Replayed, Replays, Settle, Settlement,
    Skip, Store, Webhooks, WorkLeases, WorkerRecord, WorkerReport,
};
use tenure_core::{
    Event, Guarded, Held, ItemId, PastHold, QueueName, Record, Term, Timestamp, Token, WorkerId,
};

/// Rows of a lease table: their leases and the operator's commands. Implemented by every store of
/// rows and by the jobs of a store.
pub trait LeaseRows: Send + Sync + fmt::Debug {
    /// Claim, renew, settle and reap.
    fn leases(&self) -> &dyn LeaseStore;

    /// List, replay and bury.
    fn operate(&self) -> &dyn Operate;
}

impl<T: LeaseStore + Operate> LeaseRows for T {
    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn operate(&self) -> &dyn Operate {
        self
    }
}

/// Jobs of a store that is known to have them.
struct JobRows(Arc<dyn Store>);

impl JobRows {
    fn jobs(&self) -> &dyn Jobs {
        self.0
            .job_store()
            .expect("RowStore::of_jobs checked that the store has jobs")
    }
}

impl LeaseRows for JobRows {
    fn leases(&self) -> &dyn LeaseStore {
        self.jobs().job_leases()
    }

    fn operate(&self) -> &dyn Operate {
        self.jobs().job_operations()
    }
}

impl fmt::Debug for JobRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobRows")
    }
}

/// A store for an [`Engine`](crate::Engine) that works on rows.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::store::{Queues as _, Store};
/// use tenure_engine::RowStore;
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let base: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// // Any store of rows, such as an adopted table.
/// let rows = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let store = RowStore::new(rows, Arc::clone(&base));
/// assert_eq!(store.queues().await?.len(), 1, "rows have one queue, whatever the base has");
/// assert!(RowStore::of_jobs(&base).is_none(), "the memory store has no jobs");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RowStore {
    rows: Arc<dyn LeaseRows>,
    base: Arc<dyn Store>,
}

impl RowStore {
    /// Combines rows with a base store.
    pub fn new(rows: Arc<dyn LeaseRows>, base: Arc<dyn Store>) -> Self {
        Self { rows, base }
    }

    /// Creates a store on the jobs of `base`; `None`: that store has no jobs.
    pub fn of_jobs(base: &Arc<dyn Store>) -> Option<Self> {
        base.job_store()?;
        Some(Self {
            rows: Arc::new(JobRows(Arc::clone(base))),
            base: Arc::clone(base),
        })
    }
}

impl fmt::Debug for RowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStore")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl LeaseStore for RowStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        self.rows.leases().claim(claim)
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        self.rows.leases().renew(renew)
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        self.rows.leases().settle(settle)
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        self.rows.leases().settle_and_claim(settle, claim)
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        self.rows.leases().reap(reap)
    }
}

impl Operate for RowStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.rows.operate().find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        self.rows.operate().timeline(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.rows.operate().list(filter, limit)
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.rows.operate().count(now)
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.rows.operate().replay(replay)
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.rows.operate().bury(bury)
    }
}

impl Queues for RowStore {
    /// Returns one queue, which claims on rows ignore. The queues of the base store do not apply: a
    /// pause or a term for events does not affect rows.
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        let queue = Queue {
            name: QueueName::default(),
            term: None,
            paused: false,
        };
        Box::pin(async { Ok(vec![queue]) })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        self.base.add_queue(name, term)
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.base.pause_queue(name, pause)
    }
}

impl Intake for RowStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.base.enqueue(events)
    }
}

impl Cluster for RowStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.base.settings()
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.base.change_settings(change)
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.base.report(report, now)
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.base.leave(worker, now)
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.base.workers(limit)
    }
}

impl Keys for RowStore {
    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        self.base.keys(filter, limit)
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        self.base.key(key)
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.base.pause_key(key, pause)
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.base.skip(skip)
    }
}

impl Pruner for RowStore {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        self.base.prune(prune)
    }
}

impl Examine for RowStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.base.examine()
    }
}

impl ProvidesWorkLeases for RowStore {
    fn work_leases(&self) -> &dyn WorkLeases {
        self.base.work_leases()
    }
}

impl ProvidesWebhooks for RowStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self.base.webhooks()
    }
}

impl ProvidesReplays for RowStore {
    fn replay_operations(&self) -> &dyn Replays {
        self.base.replay_operations()
    }
}

impl ProvidesJobs for RowStore {
    fn job_store(&self) -> Option<&dyn Jobs> {
        self.base.job_store()
    }
}
