//! Wire: the network between one process and the store. A call can be lost on the way there or on
//! the way back, be late on either (also by more than a term), or never come back.
//!
//! What is on the wire is no part of the process: a call that was sent arrives although its sender
//! has stopped waiting, stands still or is dead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use tenure_core::store::{
    Answer, Bury, ChangeSettings, Claim, Cluster, ClusterSettings, Counts, DomainFilter,
    DomainRecord, Domains, Enqueued, Examine, Filter, Finding, Intake, KeepsWorkLeases, LeaseStore,
    Operate, Page, Pause, Prune, Pruned, Pruner, Queue, Queues, Reap, Reaped, Renew, Renewed,
    Replay, Replayed, Settle, Settlement, Skip, StoreError, StoreErrorKind, WorkerRecord,
    WorkerReport,
};
use tenure_core::{
    EndedHold, Event, Guarded, Held, ItemId, QueueName, Record, Term, Timestamp, Token, WorkerId,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::ledger::{Ledger, at_once};
use crate::log::{Fact, Slip};
use crate::plan::Sky;

/// The weather between one process and the store.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) dice: StdRng,
    pub(crate) sky: Sky,
    /// Until when nothing comes through.
    pub(crate) cut_until: Option<Instant>,
    /// The longest that a call is late.
    pub(crate) latest: Duration,
}

/// How one call fares.
struct Trip {
    before: Duration,
    arrives: bool,
    after: Duration,
    slip: Option<Slip>,
}

impl Weather {
    fn trip(&mut self) -> Trip {
        // Two of three calls take no time at all.
        let millis = self.dice.random_range(0..9_u64);
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
        let each = self.sky.slips_per_thousand();
        let chance = self.dice.random_range(0..1000);
        let slip = if is_cut {
            [Slip::LostBefore, Slip::LostAfter, Slip::Hung][self.dice.random_range(0..3)]
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
            Slip::Hung => trip.arrives = self.dice.random_bool(0.5),
            Slip::Slow => {
                // Mostly a little, sometimes more than a term.
                let share: f64 = self.dice.random::<f64>().powi(3);
                let late = self.latest.mul_f64(share);
                let part: f64 = self.dice.random();
                trip.before += late.mul_f64(part);
                trip.after += late.mul_f64(1.0 - part);
            }
        }
        trip
    }
}

/// The network between one process and the store.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) worker: Arc<str>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) weather: Arc<Mutex<Weather>>,
}

pub(crate) fn look(weather: &Mutex<Weather>) -> MutexGuard<'_, Weather> {
    weather.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn wait(length: Duration) {
    if !length.is_zero() {
        sleep(length).await;
    }
}

impl Wire {
    fn call<T: Send + 'static>(
        &self,
        verb: &'static str,
        effect: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'static, T> {
        let wire = self.clone();
        Box::pin(async move {
            let trip = look(&wire.weather).trip();
            if let Some(slip) = trip.slip {
                let fact = Fact::Slipped(Arc::clone(&wire.worker), verb, slip);
                wire.ledger.log.add(fact);
            }
            if trip.slip.is_none() && trip.before.is_zero() && trip.after.is_zero() {
                return effect(&wire);
            }
            let (answer, answered) = oneshot::channel();
            drop(tokio::spawn(async move {
                wait(trip.before).await;
                let result = trip.arrives.then(|| effect(&wire));
                wait(trip.after).await;
                let lost = || StoreError::new(verb, StoreErrorKind::Unavailable, "lost");
                let sent = match (trip.slip, result) {
                    (Some(Slip::Hung), _) => std::future::pending().await,
                    (None | Some(Slip::Slow), Some(result)) => answer.send(result),
                    _ => answer.send(Err(lost())),
                };
                // Nobody may be waiting for it any more.
                drop(sent);
            }));
            match answered.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl LeaseStore for Wire {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        let claim = claim.clone();
        self.call("claim", move |wire| wire.ledger.claim(&wire.worker, &claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        let renew = renew.clone();
        self.call("renew", move |wire| wire.ledger.renew(&renew))
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        let settle = settle.clone();
        self.call("settle", move |wire| wire.ledger.settle(&settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        let (settle, claim) = (settle.clone(), claim.clone());
        self.call("settle_and_claim", move |wire| {
            wire.ledger.settle_and_claim(&wire.worker, &settle, &claim)
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        let reap = reap.clone();
        self.call("reap", move |wire| wire.ledger.reap(&reap))
    }
}

impl Intake for Wire {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.ledger.store.enqueue(events)
    }
}

impl Operate for Wire {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.ledger.store.find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
        self.ledger.store.timeline(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.ledger.store.list(filter, limit)
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.ledger.store.count(now)
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.ledger.store.replay(replay)
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.ledger.store.bury(bury)
    }
}

impl Queues for Wire {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        self.call("queues", |wire| at_once(wire.ledger.store.queues()))
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        self.ledger.store.add_queue(name, term)
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.ledger.store.pause_queue(name, pause)
    }
}

impl Cluster for Wire {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.call("settings", |wire| Ok(wire.ledger.cluster()))
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.ledger.store.change_settings(change)
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        let report = report.clone();
        self.call("report", move |wire| {
            at_once(wire.ledger.store.report(&report, now))
        })
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        let worker = worker.clone();
        self.call("leave", move |wire| {
            at_once(wire.ledger.store.leave(&worker, now))
        })
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.ledger.store.workers(limit)
    }
}

impl Domains for Wire {
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        self.ledger.store.domains(filter, limit)
    }

    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        self.ledger.store.domain(key)
    }

    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.ledger.store.pause_domain(key, pause)
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.ledger.store.skip(skip)
    }
}

impl Pruner for Wire {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        let prune = prune.clone();
        self.call("prune", move |wire| {
            at_once(wire.ledger.store.prune(&prune))
        })
    }
}

impl Examine for Wire {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.ledger.store.examine()
    }
}

/// The engine has no use for them.
impl tenure_core::store::KeepsWebhooks for Wire {
    fn webhooks(&self) -> &dyn tenure_core::store::Webhooks {
        self.ledger.store.webhooks()
    }
}

/// No operation is on record here.
impl tenure_core::store::KeepsJobs for Wire {}

impl tenure_core::store::KeepsReplays for Wire {
    fn replay_operations(&self) -> &dyn tenure_core::store::Replays {
        self.ledger.store.replay_operations()
    }
}

impl KeepsWorkLeases for Wire {
    fn work_leases(&self) -> &dyn tenure_core::store::WorkLeases {
        self.ledger.store.work_leases()
    }
}
