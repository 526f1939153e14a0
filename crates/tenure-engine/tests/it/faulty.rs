//! A store that stands before another one: writes down what it is asked and fails on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Answer, Bury, ChangeEndpoint, ChangeSettings, Claim, Cluster, ClusterSettings, Counts,
    DomainFilter, DomainRecord, Domains, Due, Enqueued, Examine, Filter, Finding, Intake,
    KeepsReplays, KeepsWebhooks, KeepsWorkLeases, LeaseStore, NewReplay, Operate, Page, Pause,
    Prune, Pruned, Pruner, Queue, Queues, Reap, Reaped, Renew, RenewChunks, Renewed, Replay,
    ReplayOperation, Replayed, Replays, Settle, Settlement, Skip, StepReplay, Stepped, StoreError,
    StoreErrorKind, Webhooks, WorkerRecord, WorkerReport,
};
use tenure_core::webhook::{Call, CallRecord, Endpoint, EndpointId, Health, NewEndpoint};
use tenure_core::{
    EndedHold, Event, Guarded, Held, ItemId, QueueName, Record, Term, Timestamp, Token, WorkerId,
};
use tenure_store::memory::MemoryStore;
use tokio::time::{Instant, sleep};

/// What the engine asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Claim(Claim),
    Renew(Renew),
    Settle(Settle),
    SettleAndClaim(Settle, Claim),
    Reap(Reap),
    Prune(Prune),
    Settings,
    Queues,
    Report(WorkerReport),
    Leave,
    /// What there is for a sender to do.
    Due,
    KeepHealth(Health),
    RecordCalls(Vec<Call>),
    StepReplay,
    RenewChunks(RenewChunks),
    /// What no engine asks.
    Other,
}

impl Ask {
    /// The claim in it.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claim(claim) | Self::SettleAndClaim(_, claim) => Some(claim),
            _ => None,
        }
    }

    /// The settle in it.
    pub(crate) fn settle(&self) -> Option<&Settle> {
        match self {
            Self::Settle(settle) | Self::SettleAndClaim(settle, _) => Some(settle),
            _ => None,
        }
    }

    /// Whether it settles this item.
    pub(crate) fn is_settle_of(&self, id: ItemId) -> bool {
        self.settle()
            .is_some_and(|settle| settle.items.iter().any(|(settled, _)| *settled == id))
    }

    pub(crate) fn is_renew_of(&self, token: &Token) -> bool {
        matches!(self, Self::Renew(renew) if renew.tokens.contains(token))
    }
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It fails and has no effect.
    Before,
    /// It takes effect, and its answer is lost.
    After,
    /// It takes effect at once and is answered so much later.
    Slow(Duration),
    /// It takes effect and is answered only so much later.
    Late(Duration),
    /// It is never answered and has no effect.
    Hang,
    /// It is refused as wrong, for good.
    Bad,
}

type Rule = Box<dyn FnMut(&Ask) -> Option<Fault> + Send>;

pub(crate) struct Faulty {
    inner: Arc<MemoryStore>,
    rules: Mutex<Vec<Rule>>,
    calls: Mutex<Vec<(Instant, Ask)>>,
    /// Chunks that are somebody else's now.
    taken: Mutex<BTreeSet<Token>>,
    /// Leases whose row is in somebody's transaction.
    busy: Mutex<BTreeSet<Token>>,
    /// Calls that are not answered yet.
    open: AtomicUsize,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(crate) fn new(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            rules: Mutex::new(Vec::new()),
            calls: Mutex::new(Vec::new()),
            taken: Mutex::default(),
            busy: Mutex::default(),
            open: AtomicUsize::new(0),
        }
    }

    /// How many calls are not answered yet: as many connections would be in use.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// From now on calls go wrong as this says; the first rule that has a fault for one decides.
    pub(crate) fn rule(&self, rule: impl FnMut(&Ask) -> Option<Fault> + Send + 'static) {
        self.rules.lock().unwrap().push(Box::new(rule));
    }

    /// The first call that this holds of goes wrong so.
    pub(crate) fn once(&self, holds: impl Fn(&Ask) -> bool + Send + 'static, fault: Fault) {
        let mut is_over = false;
        self.rule(move |ask| {
            if is_over || !holds(ask) {
                return None;
            }
            is_over = true;
            Some(fault)
        });
    }

    /// Somebody else has this chunk from now on.
    pub(crate) fn take_chunk(&self, token: &Token) {
        self.taken.lock().unwrap().insert(token.clone());
    }

    pub(crate) fn is_taken(&self, token: &Token) -> bool {
        self.taken.lock().unwrap().contains(token)
    }

    /// From now on a renewal leaves this lease out, as one does whose row is in a transaction.
    pub(crate) fn hold_up(&self, token: &Token) {
        self.busy.lock().unwrap().insert(token.clone());
    }

    /// The transaction is over.
    pub(crate) fn let_go(&self, token: &Token) {
        self.busy.lock().unwrap().remove(token);
    }

    pub(crate) fn is_busy(&self, token: &Token) -> bool {
        self.busy.lock().unwrap().contains(token)
    }

    /// From now on all goes well.
    pub(crate) fn mend(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// Everything that was asked, with its moment.
    pub(crate) fn calls(&self) -> Vec<(Instant, Ask)> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, holds: impl Fn(&Ask) -> bool) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(_, ask)| holds(ask)).count()
    }

    /// What was asked from this moment on.
    pub(crate) fn since(&self, moment: Instant) -> Vec<Ask> {
        let calls = self.calls();
        let later = calls.into_iter().filter(|(at, _)| *at >= moment);
        later.map(|(_, ask)| ask).collect()
    }

    /// The claims that were sent.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let calls = self.calls();
        calls
            .iter()
            .filter_map(|(_, ask)| ask.claim().cloned())
            .collect()
    }

    /// The tokens under which anything was ever asked for.
    pub(crate) fn tokens(&self) -> BTreeSet<Token> {
        self.claims().into_iter().map(|claim| claim.token).collect()
    }

    fn note(&self, ask: Ask) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap();
        let fault = rules.iter_mut().find_map(|rule| rule(&ask));
        self.calls.lock().unwrap().push((Instant::now(), ask));
        fault
    }

    /// Notes a call when it is polled first, and lets it go wrong as the rules say.
    pub(crate) fn through<'a, T: Send + 'a>(
        &'a self,
        ask: Ask,
        call: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            self.open.fetch_add(1, Ordering::SeqCst);
            let _open = Open(&self.open);
            match self.note(ask) {
                None => call().await,
                Some(Fault::Before) => Err(away()),
                Some(Fault::After) => {
                    drop(call().await?);
                    Err(away())
                }
                Some(Fault::Slow(span)) => {
                    let answer = call().await;
                    sleep(span).await;
                    answer
                }
                Some(Fault::Late(span)) => {
                    sleep(span).await;
                    call().await
                }
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::Bad) => Err(StoreError::new(
                    "test",
                    StoreErrorKind::Invalid,
                    "a planted mistake",
                )),
            }
        })
    }
}

/// A call that is not answered yet.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn away() -> StoreError {
    StoreError::new("test", StoreErrorKind::Unavailable, "a planted outage")
}

impl LeaseStore for Faulty {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        self.through(Ask::Claim(claim.clone()), || self.inner.claim(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        let answers = self.through(Ask::Renew(renew.clone()), || self.inner.renew(renew));
        Box::pin(async move {
            let mut answers = answers.await?;
            answers.retain(|(token, _)| !self.is_busy(token));
            Ok(answers)
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        self.through(Ask::Settle(settle.clone()), || self.inner.settle(settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        let ask = Ask::SettleAndClaim(settle.clone(), claim.clone());
        self.through(ask, || self.inner.settle_and_claim(settle, claim))
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        self.through(Ask::Reap(reap.clone()), || self.inner.reap(reap))
    }
}

impl Intake for Faulty {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.through(Ask::Other, || self.inner.enqueue(events))
    }
}

impl Operate for Faulty {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.through(Ask::Other, || self.inner.find(ids))
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
        self.through(Ask::Other, move || self.inner.timeline(id))
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.through(Ask::Other, move || self.inner.list(filter, limit))
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.through(Ask::Other, move || self.inner.count(now))
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.through(Ask::Other, || self.inner.replay(replay))
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.through(Ask::Other, || self.inner.bury(bury))
    }
}

impl Queues for Faulty {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        self.through(Ask::Queues, || self.inner.queues())
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        self.through(Ask::Other, move || self.inner.add_queue(name, term))
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.through(Ask::Other, move || self.inner.pause_queue(name, pause))
    }
}

impl Cluster for Faulty {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.through(Ask::Settings, || self.inner.settings())
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.through(Ask::Other, || self.inner.change_settings(change))
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        let ask = Ask::Report(report.clone());
        self.through(ask, move || self.inner.report(report, now))
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.through(Ask::Leave, move || self.inner.leave(worker, now))
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.through(Ask::Other, move || self.inner.workers(limit))
    }
}

impl Domains for Faulty {
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        self.through(Ask::Other, move || self.inner.domains(filter, limit))
    }

    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        self.through(Ask::Other, move || self.inner.domain(key))
    }

    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.through(Ask::Other, move || self.inner.pause_domain(key, pause))
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.through(Ask::Other, move || self.inner.skip(skip))
    }
}

impl Pruner for Faulty {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        self.through(Ask::Prune(prune.clone()), || self.inner.prune(prune))
    }
}

impl Examine for Faulty {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.through(Ask::Other, || self.inner.examine())
    }
}

impl KeepsWebhooks for Faulty {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for Faulty {
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        self.through(Ask::Other, move || self.inner.add_endpoint(endpoint, now))
    }

    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        self.through(Ask::Other, move || self.inner.endpoints(after, limit))
    }

    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        self.through(Ask::Other, move || self.inner.endpoint(id))
    }

    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        self.through(Ask::Other, move || self.inner.change_endpoint(change))
    }

    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a Health) -> Answer<'a, ()> {
        let ask = Ask::KeepHealth(health.clone());
        self.through(ask, move || self.inner.keep_health(id, health))
    }

    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due> {
        self.through(Ask::Due, move || self.inner.due_deliveries(now))
    }

    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()> {
        let ask = Ask::RecordCalls(calls.to_vec());
        self.through(ask, move || self.inner.record_calls(calls, now))
    }

    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        self.through(Ask::Other, move || Webhooks::calls(&*self.inner, delivery))
    }
}

impl KeepsReplays for Faulty {
    fn replay_operations(&self) -> &dyn Replays {
        self
    }
}

impl Replays for Faulty {
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation> {
        self.through(Ask::Other, || self.inner.start_replay(replay))
    }

    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped> {
        self.through(Ask::StepReplay, || self.inner.step_replay(step))
    }

    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>> {
        self.through(Ask::Other, move || self.inner.replays(limit))
    }

    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>> {
        self.through(Ask::Other, move || self.inner.replay_operation(id))
    }

    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>> {
        self.through(Ask::Other, move || self.inner.cancel_replay(id, now))
    }
}

impl KeepsWorkLeases for Faulty {
    fn work_leases(&self) -> &dyn tenure_core::store::WorkLeases {
        self.inner.work_leases()
    }
}
