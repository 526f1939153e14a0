//! Network between one process and the store. A call or its answer can be lost or late (even by
//! more than a term), and a call can hang for ever.
//!
//! A call in flight is not part of the process: it arrives even if its caller has stopped waiting,
//! is paused or is dead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use tenure_core::store::{
    Answer, Bury, ChangeSettings, Claim, Cluster, ClusterSettings, Counts, DelayedPage, Delays,
    Enqueued, Examine, Filter, Finding, Intake, KeyFilter, KeyRecord, Keys, LeaseStore,
    ListDelayed, Operate, Page, Pause, ProvidesWorkLeases, Prune, Pruned, Pruner, Queue,
    QueueRules, Queues, Reap, Reaped, Renew, Renewed, Replay, Replayed, RetryAnswer, RetryNow,
    SeparateTopic, Settle, Settlement, Skip, StoreError, StoreErrorKind, WorkerRecord,
    WorkerReport,
};
use tenure_core::{
    Event, Guarded, Held, ItemId, PastHold, QueueName, Record, Timestamp, Token, WorkerId,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::log::{Fact, Slip};
use crate::logged_store::{LoggedStore, at_once};
use crate::plan::Quality;

/// Time from the start of an outage in which calls may take effect without an answer.
const FIRST_OF_OUTAGE: Duration = Duration::from_millis(20);

/// Conditions of the network of one process.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) rng: StdRng,
    pub(crate) quality: Quality,
    /// End of a partition.
    pub(crate) cut_until: Option<Instant>,
    /// Start of an outage of the store.
    pub(crate) out_since: Option<Instant>,
    /// Longest delay of a call.
    pub(crate) latest: Duration,
}

/// Fate of one call.
struct Trip {
    before: Duration,
    arrives: bool,
    after: Duration,
    slip: Option<Slip>,
}

impl Conditions {
    /// A store that is unavailable processes no call. At first, it may still process some without
    /// an answer.
    fn trip_in_outage(&mut self, is_first: bool, mut trip: Trip) -> Trip {
        let slips = [Slip::LostBefore, Slip::Hung, Slip::LostAfter];
        let slip = slips[self.rng.random_range(0..if is_first { 3 } else { 2 })];
        trip.arrives = slip == Slip::LostAfter;
        trip.slip = Some(slip);
        trip
    }

    fn trip(&mut self) -> Trip {
        // Two of three calls take no time.
        let millis = self.rng.random_range(0..9_u64);
        let (before, after) = if millis < 3 {
            (millis, 2 - millis)
        } else {
            (0, 0)
        };
        let mut trip = Trip {
            before: Duration::from_millis(before),
            arrives: true,
            after: Duration::from_millis(after),
            slip: None,
        };
        let is_cut = self.cut_until.is_some_and(|until| Instant::now() < until);
        if let Some(since) = self.out_since {
            let is_first = since.elapsed() < FIRST_OF_OUTAGE;
            return self.trip_in_outage(is_first, trip);
        }
        let each = self.quality.slips_per_thousand();
        let chance = self.rng.random_range(0..1000);
        let slip = if is_cut {
            [Slip::LostBefore, Slip::LostAfter, Slip::Hung][self.rng.random_range(0..3)]
        } else if chance < each {
            Slip::LostBefore
        } else if chance < each * 2 {
            Slip::LostAfter
        } else if chance < each * 3 {
            Slip::Hung
        } else if chance < each * 4 {
            Slip::Slow
        } else {
            return trip;
        };
        trip.slip = Some(slip);
        match slip {
            Slip::LostBefore => trip.arrives = false,
            Slip::LostAfter => {}
            Slip::Hung => trip.arrives = self.rng.random_bool(0.5),
            Slip::Slow => {
                // The delay is mostly short, sometimes more than a term.
                let share: f64 = self.rng.random::<f64>().powi(3);
                let late = self.latest.mul_f64(share);
                let part: f64 = self.rng.random();
                trip.before += late.mul_f64(part);
                trip.after += late.mul_f64(1.0 - part);
            }
        }
        trip
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) worker: Arc<str>,
    pub(crate) store: Arc<LoggedStore>,
    pub(crate) conditions: Arc<Mutex<Conditions>>,
}

pub(crate) fn lock(conditions: &Mutex<Conditions>) -> MutexGuard<'_, Conditions> {
    conditions.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn wait(length: Duration) {
    if !length.is_zero() {
        sleep(length).await;
    }
}

impl Network {
    fn call<T: Send + 'static>(
        &self,
        verb: &'static str,
        effect: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'static, T> {
        let network = self.clone();
        Box::pin(async move {
            let trip = lock(&network.conditions).trip();
            if let Some(slip) = trip.slip {
                let fact = Fact::Slipped(Arc::clone(&network.worker), verb, slip);
                network.store.log.add(fact);
            }
            if trip.slip.is_none() && trip.before.is_zero() && trip.after.is_zero() {
                return effect(&network);
            }
            let (answer, answered) = oneshot::channel();
            drop(tokio::spawn(async move {
                wait(trip.before).await;
                let result = trip.arrives.then(|| effect(&network));
                wait(trip.after).await;
                let lost = || StoreError::new(verb, StoreErrorKind::Unavailable, "lost");
                let sent = match (trip.slip, result) {
                    (Some(Slip::Hung), _) => std::future::pending().await,
                    (None | Some(Slip::Slow), Some(result)) => answer.send(result),
                    _ => answer.send(Err(lost())),
                };
                // The caller may have stopped waiting.
                drop(sent);
            }));
            match answered.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl LeaseStore for Network {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        let claim = claim.clone();
        self.call("claim", move |network| {
            network.store.claim(&network.worker, &claim)
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        let renew = renew.clone();
        self.call("renew", move |network| network.store.renew(&renew))
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        let settle = settle.clone();
        self.call("settle", move |network| network.store.settle(&settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        let (settle, claim) = (settle.clone(), claim.clone());
        self.call("settle_and_claim", move |network| {
            network
                .store
                .settle_and_claim(&network.worker, &settle, &claim)
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        let reap = reap.clone();
        self.call("reap", move |network| network.store.reap(&reap))
    }
}

impl Intake for Network {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.store.inner.enqueue(events)
    }
}

impl Operate for Network {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.store.inner.find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        self.store.inner.timeline(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.store.inner.list(filter, limit)
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.store.inner.count(now)
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.store.inner.replay(replay)
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.store.inner.bury(bury)
    }
}

impl Queues for Network {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        self.call("queues", |network| at_once(network.store.inner.queues()))
    }

    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>> {
        self.store.inner.separate_topics(now)
    }

    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>> {
        self.store.inner.due_topics(now)
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()> {
        self.store.inner.add_queue(name, rules)
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.store.inner.pause_queue(name, pause)
    }
}

impl Cluster for Network {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.call("settings", |network| Ok(network.store.cluster()))
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.store.inner.change_settings(change)
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        let report = report.clone();
        self.call("report", move |network| {
            at_once(network.store.inner.report(&report, now))
        })
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        let worker = worker.clone();
        self.call("leave", move |network| {
            at_once(network.store.inner.leave(&worker, now))
        })
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.store.inner.workers(limit)
    }
}

impl Keys for Network {
    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>> {
        self.store.inner.blocked_keys(after, limit)
    }

    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        self.store.inner.keys(filter, limit)
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        self.store.inner.key(key)
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.store.inner.pause_key(key, pause)
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.store.inner.skip(skip)
    }
}

impl Delays for Network {
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage> {
        self.store.inner.delayed(list)
    }

    fn retry_now<'a>(&'a self, retry: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>> {
        self.store.inner.retry_now(retry)
    }
}

impl Pruner for Network {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        let prune = prune.clone();
        self.call("prune", move |network| {
            at_once(network.store.inner.prune(&prune))
        })
    }
}

impl Examine for Network {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.store.inner.examine()
    }
}

/// The simulated engine does not use webhooks.
impl tenure_core::store::ProvidesWebhooks for Network {
    fn webhooks(&self) -> &dyn tenure_core::store::Webhooks {
        self.store.inner.webhooks()
    }
}

/// The simulation has no jobs and no replays.
impl tenure_core::store::ProvidesJobs for Network {}

impl tenure_core::store::ProvidesReplays for Network {
    fn replay_operations(&self) -> &dyn tenure_core::store::Replays {
        self.store.inner.replay_operations()
    }
}

impl ProvidesWorkLeases for Network {
    fn work_leases(&self) -> &dyn tenure_core::store::WorkLeases {
        self.store.inner.work_leases()
    }
}
