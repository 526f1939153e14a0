//! `RowStore`: the one loop on the rows of a lease table. Leases and what people do with the rows
//! go to the table; settings, the register of workers and all else to the house that it stands in.
//!
//! Rows have no queues, domains, deliveries or replays on record.

use std::fmt;
use std::sync::Arc;

use tenure_core::store::{
    Answer, Bury, ChangeSettings, Claim, Cluster, ClusterSettings, Counts, DomainFilter,
    DomainRecord, Domains, Enqueued, Examine, Filter, Finding, Intake, Jobs, KeepsJobs,
    KeepsReplays, KeepsWebhooks, KeepsWorkLeases, LeaseStore, Operate, Page, Pause, Prune, Pruned,
    Pruner, Queue, Queues, Reap, Reaped, Renew, Renewed, Replay, Replayed, Replays, Settle,
    Settlement, Skip, Store, Webhooks, WorkLeases, WorkerRecord, WorkerReport,
};
use tenure_core::{
    EndedHold, Event, Guarded, Held, ItemId, QueueName, Record, Term, Timestamp, Token, WorkerId,
};

/// The rows of a lease table: their leases, and what people do with them. Every store of rows is
/// one; so are the jobs of a store.
pub trait LeaseRows: Send + Sync + fmt::Debug {
    /// Claims, renews, settles and reaps them.
    fn leases(&self) -> &dyn LeaseStore;

    /// Shows, replays and buries them.
    fn desk(&self) -> &dyn Operate;
}

impl<T: LeaseStore + Operate> LeaseRows for T {
    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn desk(&self) -> &dyn Operate {
        self
    }
}

/// The jobs of a store that is known to keep some.
struct JobRows(Arc<dyn Store>);

impl JobRows {
    fn book(&self) -> &dyn Jobs {
        self.0
            .job_book()
            .expect("a store that kept jobs when it was asked keeps them for good")
    }
}

impl LeaseRows for JobRows {
    fn leases(&self) -> &dyn LeaseStore {
        self.book().job_leases()
    }

    fn desk(&self) -> &dyn Operate {
        self.book().job_desk()
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
/// let house: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// // Any store of rows will do: an adopted table, for one.
/// let rows = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let store = RowStore::new(rows, Arc::clone(&house));
/// assert_eq!(store.queues().await?.len(), 1, "rows stand in one line, whatever the house has");
/// assert!(RowStore::of_jobs(&house).is_none(), "the memory store keeps no jobs");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RowStore {
    rows: Arc<dyn LeaseRows>,
    house: Arc<dyn Store>,
}

impl RowStore {
    /// These rows in this house.
    pub fn new(rows: Arc<dyn LeaseRows>, house: Arc<dyn Store>) -> Self {
        Self { rows, house }
    }

    /// The jobs of this store; `None`: it keeps none.
    pub fn of_jobs(house: &Arc<dyn Store>) -> Option<Self> {
        house.job_book()?;
        Some(Self {
            rows: Arc::new(JobRows(Arc::clone(house))),
            house: Arc::clone(house),
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
        self.rows.desk().find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
        self.rows.desk().timeline(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.rows.desk().list(filter, limit)
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.rows.desk().count(now)
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.rows.desk().replay(replay)
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.rows.desk().bury(bury)
    }
}

impl Queues for RowStore {
    /// One line, which a claim on rows does not look at. The house's queues are none of theirs: a
    /// pause or a term that is meant for events does not touch rows.
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        let line = Queue {
            name: QueueName::default(),
            term: None,
            paused: false,
        };
        Box::pin(async { Ok(vec![line]) })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        self.house.add_queue(name, term)
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.house.pause_queue(name, pause)
    }
}

impl Intake for RowStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.house.enqueue(events)
    }
}

impl Cluster for RowStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.house.settings()
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.house.change_settings(change)
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.house.report(report, now)
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.house.leave(worker, now)
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.house.workers(limit)
    }
}

impl Domains for RowStore {
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        self.house.domains(filter, limit)
    }

    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        self.house.domain(key)
    }

    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.house.pause_domain(key, pause)
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.house.skip(skip)
    }
}

impl Pruner for RowStore {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        self.house.prune(prune)
    }
}

impl Examine for RowStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.house.examine()
    }
}

impl KeepsWorkLeases for RowStore {
    fn work_leases(&self) -> &dyn WorkLeases {
        self.house.work_leases()
    }
}

impl KeepsWebhooks for RowStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self.house.webhooks()
    }
}

impl KeepsReplays for RowStore {
    fn replay_operations(&self) -> &dyn Replays {
        self.house.replay_operations()
    }
}

impl KeepsJobs for RowStore {
    fn job_book(&self) -> Option<&dyn Jobs> {
        self.house.job_book()
    }
}
