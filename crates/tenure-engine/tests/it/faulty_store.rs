//! A store in front of another store that records calls and fails on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Answer, Bury, ChangeEndpoint, ChangeSettings, Claim, Cluster, ClusterSettings, Counts,
    DelayedPage, Delays, Due, Enqueued, Examine, Filter, Finding, Intake, KeyFilter, KeyRecord,
    Keys, LeaseStore, ListDelayed, NewReplay, Operate, Page, Pause, ProvidesReplays,
    ProvidesWebhooks, ProvidesWorkLeases, Prune, Pruned, Pruner, Queue, QueueRules, Queues, Reap,
    Reaped, Renew, RenewChunks, Renewed, Replay, ReplayOperation, Replayed, Replays, RetryAnswer,
    RetryNow, SeparateTopic, Settle, Settlement, Skip, StepReplay, Stepped, StoreError,
    StoreErrorKind, Webhooks, WorkerRecord, WorkerReport,
};
use tenure_core::webhook::{Call, CallRecord, Endpoint, EndpointHealth, EndpointId, NewEndpoint};
use tenure_core::{
    Event, Guarded, Held, ItemId, PastHold, QueueName, Record, Timestamp, Token, WorkerId,
};
use tenure_store::memory::MemoryStore;
use tokio::time::{Instant, sleep};

/// A call that the engine makes.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
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
    /// Due deliveries of a sender.
    Due,
    KeepHealth(EndpointHealth),
    RecordCalls(Vec<Call>),
    StepReplay,
    RenewChunks(RenewChunks),
    /// All other calls.
    Other,
}

impl Verb {
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claim(claim) | Self::SettleAndClaim(_, claim) => Some(claim),
            _ => None,
        }
    }

    pub(crate) fn settle(&self) -> Option<&Settle> {
        match self {
            Self::Settle(settle) | Self::SettleAndClaim(settle, _) => Some(settle),
            _ => None,
        }
    }

    pub(crate) fn is_settle_of(&self, id: ItemId) -> bool {
        self.settle()
            .is_some_and(|settle| settle.items.iter().any(|(settled, _)| *settled == id))
    }

    pub(crate) fn is_renew_of(&self, token: &Token) -> bool {
        matches!(self, Self::Renew(renew) if renew.tokens.contains(token))
    }
}

/// Fault of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Fails without effect.
    Before,
    /// Takes effect, but the answer is lost.
    After,
    /// Takes effect at once; the answer comes after this long.
    Slow(Duration),
    /// Takes effect and is answered after this long.
    Late(Duration),
    /// Is never answered and has no effect.
    Hang,
    /// Fails permanently as invalid.
    Bad,
}

type Rule = Box<dyn FnMut(&Verb) -> Option<Fault> + Send>;

pub(crate) struct FaultyStore {
    inner: Arc<MemoryStore>,
    rules: Mutex<Vec<Rule>>,
    calls: Mutex<Vec<(Instant, Verb)>>,
    /// Chunks that another worker has taken.
    taken: Mutex<BTreeSet<Token>>,
    /// Leases whose row a transaction has locked.
    busy: Mutex<BTreeSet<Token>>,
    /// Number of calls under way.
    open: AtomicUsize,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl FaultyStore {
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

    /// Number of calls under way; each would use a connection.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Adds a rule for faults; the first rule with a fault for a call decides.
    pub(crate) fn rule(&self, rule: impl FnMut(&Verb) -> Option<Fault> + Send + 'static) {
        self.rules.lock().unwrap().push(Box::new(rule));
    }

    /// Injects the fault into the first matching call.
    pub(crate) fn once(&self, holds: impl Fn(&Verb) -> bool + Send + 'static, fault: Fault) {
        let mut is_over = false;
        self.rule(move |call| {
            if is_over || !holds(call) {
                return None;
            }
            is_over = true;
            Some(fault)
        });
    }

    /// Gives this chunk to another worker.
    pub(crate) fn take_chunk(&self, token: &Token) {
        self.taken.lock().unwrap().insert(token.clone());
    }

    pub(crate) fn is_taken(&self, token: &Token) -> bool {
        self.taken.lock().unwrap().contains(token)
    }

    /// Makes renewals leave out this lease, as if a transaction had locked its row.
    pub(crate) fn lock_row(&self, token: &Token) {
        self.busy.lock().unwrap().insert(token.clone());
    }

    /// Ends the transaction that locked this row.
    pub(crate) fn unlock_row(&self, token: &Token) {
        self.busy.lock().unwrap().remove(token);
    }

    pub(crate) fn is_busy(&self, token: &Token) -> bool {
        self.busy.lock().unwrap().contains(token)
    }

    /// Removes all faults.
    pub(crate) fn heal(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// All calls with their times.
    pub(crate) fn calls(&self) -> Vec<(Instant, Verb)> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, holds: impl Fn(&Verb) -> bool) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(_, call)| holds(call)).count()
    }

    pub(crate) fn since(&self, moment: Instant) -> Vec<Verb> {
        let calls = self.calls();
        let later = calls.into_iter().filter(|(at, _)| *at >= moment);
        later.map(|(_, call)| call).collect()
    }

    pub(crate) fn claims(&self) -> Vec<Claim> {
        let calls = self.calls();
        calls
            .iter()
            .filter_map(|(_, call)| call.claim().cloned())
            .collect()
    }

    pub(crate) fn tokens(&self) -> BTreeSet<Token> {
        self.claims().into_iter().map(|claim| claim.token).collect()
    }

    fn record(&self, call: Verb) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap();
        let fault = rules.iter_mut().find_map(|rule| rule(&call));
        self.calls.lock().unwrap().push((Instant::now(), call));
        fault
    }

    /// Records a call when it is first polled, and injects its fault.
    pub(crate) fn through<'a, T: Send + 'a>(
        &'a self,
        call: Verb,
        forward: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            self.open.fetch_add(1, Ordering::SeqCst);
            let _open = Open(&self.open);
            match self.record(call) {
                None => forward().await,
                Some(Fault::Before) => Err(away()),
                Some(Fault::After) => {
                    drop(forward().await?);
                    Err(away())
                }
                Some(Fault::Slow(span)) => {
                    let answer = forward().await;
                    sleep(span).await;
                    answer
                }
                Some(Fault::Late(span)) => {
                    sleep(span).await;
                    forward().await
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

/// Guard of a call under way.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn away() -> StoreError {
    StoreError::new("test", StoreErrorKind::Unavailable, "a planted outage")
}

impl LeaseStore for FaultyStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        self.through(Verb::Claim(claim.clone()), || self.inner.claim(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        let answers = self.through(Verb::Renew(renew.clone()), || self.inner.renew(renew));
        Box::pin(async move {
            let mut answers = answers.await?;
            answers.retain(|(token, _)| !self.is_busy(token));
            Ok(answers)
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        self.through(Verb::Settle(settle.clone()), || self.inner.settle(settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        let call = Verb::SettleAndClaim(settle.clone(), claim.clone());
        self.through(call, || self.inner.settle_and_claim(settle, claim))
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        self.through(Verb::Reap(reap.clone()), || self.inner.reap(reap))
    }
}

impl Intake for FaultyStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        self.through(Verb::Other, || self.inner.enqueue(events))
    }
}

impl Operate for FaultyStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.through(Verb::Other, || self.inner.find(ids))
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        self.through(Verb::Other, move || self.inner.timeline(id))
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.through(Verb::Other, move || self.inner.list(filter, limit))
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.through(Verb::Other, move || self.inner.count(now))
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        self.through(Verb::Other, || self.inner.replay(replay))
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.through(Verb::Other, || self.inner.bury(bury))
    }
}

impl Queues for FaultyStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        self.through(Verb::Queues, || self.inner.queues())
    }

    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>> {
        self.through(Verb::Other, move || self.inner.separate_topics(now))
    }

    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>> {
        self.through(Verb::Other, move || self.inner.due_topics(now))
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()> {
        self.through(Verb::Other, move || self.inner.add_queue(name, rules))
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        self.through(Verb::Other, move || self.inner.pause_queue(name, pause))
    }
}

impl Cluster for FaultyStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        self.through(Verb::Settings, || self.inner.settings())
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        self.through(Verb::Other, || self.inner.change_settings(change))
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        let call = Verb::Report(report.clone());
        self.through(call, move || self.inner.report(report, now))
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        self.through(Verb::Leave, move || self.inner.leave(worker, now))
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        self.through(Verb::Other, move || self.inner.workers(limit))
    }
}

impl Keys for FaultyStore {
    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>> {
        self.through(Verb::Other, move || self.inner.blocked_keys(after, limit))
    }

    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        self.through(Verb::Other, move || self.inner.keys(filter, limit))
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        self.through(Verb::Other, move || self.inner.key(key))
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        self.through(Verb::Other, move || self.inner.pause_key(key, pause))
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        self.through(Verb::Other, move || self.inner.skip(skip))
    }
}

impl Delays for FaultyStore {
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage> {
        self.through(Verb::Other, move || self.inner.delayed(list))
    }

    fn retry_now<'a>(&'a self, retry: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>> {
        self.through(Verb::Other, move || self.inner.retry_now(retry))
    }
}

impl Pruner for FaultyStore {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        self.through(Verb::Prune(prune.clone()), || self.inner.prune(prune))
    }
}

impl Examine for FaultyStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        self.through(Verb::Other, || self.inner.examine())
    }
}

impl ProvidesWebhooks for FaultyStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for FaultyStore {
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        self.through(Verb::Other, move || self.inner.add_endpoint(endpoint, now))
    }

    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        self.through(Verb::Other, move || self.inner.endpoints(after, limit))
    }

    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        self.through(Verb::Other, move || self.inner.endpoint(id))
    }

    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        self.through(Verb::Other, move || self.inner.change_endpoint(change))
    }

    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a EndpointHealth) -> Answer<'a, ()> {
        let call = Verb::KeepHealth(health.clone());
        self.through(call, move || self.inner.keep_health(id, health))
    }

    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due> {
        self.through(Verb::Due, move || self.inner.due_deliveries(now))
    }

    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()> {
        let call = Verb::RecordCalls(calls.to_vec());
        self.through(call, move || self.inner.record_calls(calls, now))
    }

    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        self.through(Verb::Other, move || Webhooks::calls(&*self.inner, delivery))
    }
}

impl ProvidesReplays for FaultyStore {
    fn replay_operations(&self) -> &dyn Replays {
        self
    }
}

impl Replays for FaultyStore {
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation> {
        self.through(Verb::Other, || self.inner.start_replay(replay))
    }

    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped> {
        self.through(Verb::StepReplay, || self.inner.step_replay(step))
    }

    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>> {
        self.through(Verb::Other, move || self.inner.replays(limit))
    }

    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>> {
        self.through(Verb::Other, move || self.inner.replay_operation(id))
    }

    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>> {
        self.through(Verb::Other, move || self.inner.cancel_replay(id, now))
    }
}

impl ProvidesWorkLeases for FaultyStore {
    fn work_leases(&self) -> &dyn tenure_core::store::WorkLeases {
        self.inner.work_leases()
    }
}
