//! Claim loop: waits, claims, settles. A worker runs two loops and a sender three, so that one
//! batch is settled while the next is claimed; executors run the handlers in between.
//!
//! A claim without an answer is released by its token. A settle without an answer is repeated while
//! the lease lasts, for at most `max_hold`; the store gives a repeated settle the same answer.
//! Later, its items are released by the releaser: once a renewal has failed, no outcome may be
//! settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::store::{Claim, Isolation, LeaseStore, Recovered, Settle, Settlement};
use tenure_core::webhook::AttemptOutcome;
use tenure_core::{Held, OutcomeKind, Refusal};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use crate::attachment::PendingSettle;
use crate::chooser::Room;
use crate::config::{EngineConfig, Recovery};
use crate::executor;
use crate::handler::Readiness;
use crate::held::{ClaimRequest, GivenUp, Step, StoreWork};
use crate::held_lease::{HeldLease, less_margin};
use crate::item_queues::ItemQueues;
use crate::metrics::{
    CLAIMED, CLAIMING_PAUSED, DELIVERY_ATTEMPTS, HELD, PICKUP_SECONDS, REFUSED, RUNNING, SETTLED,
    SETTLED_LATE,
};
use crate::orphaned_calls;
use crate::reaper;
use crate::releaser;
use crate::shared::Shared;
use crate::tasks::Tasks;

/// Number of claim loops per worker, and thus the maximum of concurrent claims and settles.
const CLAIM_LOOPS: u32 = 2;
/// Number of claim loops of a sender, which claims and settles in separate loops.
const CLAIM_LOOPS_CHOOSING: u32 = 3;

const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Number of claim loops for this configuration.
pub(crate) fn count(config: &EngineConfig) -> u32 {
    match config.chooser {
        None => CLAIM_LOOPS,
        Some(_) => CLAIM_LOOPS_CHOOSING,
    }
}

/// Runs until the worker has stopped and nothing is held.
pub(crate) async fn run(shared: Arc<Shared>, tasks: Arc<Tasks>) {
    loop {
        let notified = shared.claim_loops.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        spawn_executors(&shared, &tasks);
        let now = Instant::now();
        let is_ready = is_ready(&shared);
        match shared.held_leases.step(now, is_ready, || shared.mint()) {
            Step::Go(work) => {
                // Another loop may have work, too.
                shared.claim_loops.notify_one();
                perform(&shared, &tasks, *work).await;
                shared.cleared.notify_waiters();
            }
            Step::Wait(until) => {
                tokio::select! {
                    biased;
                    () = notified => {}
                    () = sleep_until(until) => {}
                }
            }
            Step::Over => {
                shared.cleared.notify_waiters();
                return;
            }
        }
    }
}

/// True if the handler accepts items. Logs each change once.
fn is_ready(shared: &Shared) -> bool {
    match shared.handler.readiness() {
        Readiness::Ready => {
            if shared.is_claiming_paused.swap(false, Ordering::Relaxed) {
                shared.metrics.gauge(CLAIMING_PAUSED, &[]).set(0.0);
                info!("resumed claiming");
            }
            true
        }
        Readiness::Away { reason } => {
            if !shared.is_claiming_paused.swap(true, Ordering::Relaxed) {
                shared.metrics.gauge(CLAIMING_PAUSED, &[]).set(1.0);
                warn!(reason, "paused claiming: the handler is not ready");
            }
            false
        }
    }
}

async fn perform(shared: &Arc<Shared>, tasks: &Tasks, work: StoreWork) {
    orphaned_calls::spawn(shared, tasks, work.orphans);
    if work.must_release {
        releaser::spawn(shared, tasks);
    }
    match (work.settle, work.claim) {
        (Some(pending), Some(request)) => settle_and_claim(shared, tasks, pending, request).await,
        (Some(pending), None) => settle_in_loop(shared, pending).await,
        (None, Some(request)) => choose_and_claim(shared, tasks, request).await,
        (None, None) => {}
    }
}

async fn settle_and_claim(
    shared: &Arc<Shared>,
    tasks: &Tasks,
    mut pending: PendingSettle,
    request: ClaimRequest,
) {
    let claim = claim_of(shared, &request).await;
    let settle = pending.sent_at(Instant::now());
    let call = shared.leases().settle_and_claim(settle, &claim);
    let answer = shared.call("settle_and_claim", bound(&request), call).await;
    report_recovered(shared, &claim).await;
    if let Ok((settlement, held)) = answer {
        take_settled(shared, &pending, &settlement);
        take_claimed(shared, tasks, &request, held);
    } else {
        claim_failed(shared, &request);
        settle_in_loop(shared, pending).await;
    }
}

/// Selects the lanes of a sender, then claims from them.
async fn choose_and_claim(shared: &Arc<Shared>, tasks: &Tasks, mut request: ClaimRequest) {
    let Some(chooser) = &shared.config.chooser else {
        claim_and_take(shared, tasks, request).await;
        return;
    };
    if chooser.is_known_idle(request.target.isolation) {
        take_claimed(shared, tasks, &request, None);
        return;
    }
    let room = Room {
        limit: request.limit,
        concurrency: shared.live.borrow().settings.concurrency,
        isolation: request.target.isolation,
        in_hand: std::mem::take(&mut request.in_hand),
    };
    let chosen = if let Some(lanes) = chooser.choose_again(&room) {
        Ok(lanes)
    } else {
        let choice = chooser.choose(&room);
        shared.call("choose", bound(&request), choice).await
    };
    match chosen {
        Ok(lanes) if lanes.is_empty() => take_claimed(shared, tasks, &request, None),
        Ok(lanes) => {
            request.lanes = lanes;
            // The lease starts only now.
            request.sent_at = Instant::now();
            chooser.took(claim_and_take(shared, tasks, request).await);
        }
        // Nothing was claimed, so there is nothing to release.
        Err(_) => {
            let (now, chance) = (Instant::now(), shared.rng.chance());
            shared.held_leases.choice_failed(&request, now, chance);
        }
    }
}

/// Claims and queues the items; returns true if the claim reached its limit.
async fn claim_and_take(shared: &Arc<Shared>, tasks: &Tasks, request: ClaimRequest) -> bool {
    let claim = claim_of(shared, &request).await;
    let call = shared.leases().claim(&claim);
    let answer = shared.call("claim", bound(&request), call).await;
    report_recovered(shared, &claim).await;
    let Ok(held) = answer else {
        claim_failed(shared, &request);
        return false;
    };
    let is_full = held.as_ref().is_some_and(|held| held.is_full);
    take_claimed(shared, tasks, &request, held);
    is_full
}

async fn claim_of(shared: &Shared, request: &ClaimRequest) -> Claim {
    let topics = shared.handler.topics().await;
    shared.set_topics(&topics);
    let rows = &shared.config.rows;
    let recovery = match rows.recovery {
        // The reaper ends lapsed leases, and counts and logs their items.
        Recovery::ByReaper => None,
        // As the reaper, claims leave the holders time after an outage.
        Recovery::InClaim if shared.reap_delay().is_some() => None,
        Recovery::InClaim => Some(shared.live.borrow().settings.lapse_policy()),
    };
    let mut claim = Claim::new(request.token.clone(), request.limit);
    if recovery.is_some() {
        claim = claim.recovered(Recovered::default());
    }
    let claim = claim
        .min_parallel(request.min_parallel)
        .term(request.target.timing.term)
        .queues(request.target.queues.clone())
        .topics(topics)
        .lanes(request.lanes.clone())
        .kinds(rows.kinds.clone())
        .recovery(recovery);
    match request.target.isolation {
        Isolation::Shared => claim,
        Isolation::Isolated => claim.alone(),
    }
}

/// Counts and logs the items whose lapsed leases the claim ended, as the reaper does.
async fn report_recovered(shared: &Shared, claim: &Claim) {
    let reaped = claim.recovered.as_ref().map(Recovered::take);
    if let Some(reaped) = reaped.filter(|reaped| !reaped.is_empty()) {
        reaper::report(shared, &reaped).await;
    }
}

/// Deadline of a claim: an answer after the end of its own lease is useless.
fn bound(request: &ClaimRequest) -> Instant {
    HeldLease::deadline(request.sent_at, request.target.timing.term.length())
}

/// Queues the claimed items and starts missing executors.
fn take_claimed(shared: &Arc<Shared>, tasks: &Tasks, request: &ClaimRequest, held: Option<Held>) {
    let now = Instant::now();
    shared.vitals.claimed(now);
    if let Some(held) = &held {
        shared.metrics.count(CLAIMED, &[], held.items.len());
        let queues = ItemQueues::new(&held.items);
        for item in &held.items {
            let waited = held.lease.claimed_at.since(item.available_at);
            let queue = ("queue", queues.get(item.id));
            shared.metrics.record(PICKUP_SECONDS, queue, waited);
        }
    }
    let chance = shared.rng.chance();
    let count = shared.held_leases.claimed(request, held, now, chance);
    if request.target.timing.heartbeat < shared.live.borrow().heartbeat() {
        // The claim used older settings with a shorter heartbeat: the heartbeat and the watchdog
        // must check sooner.
        shared.tuned.notify_waiters();
    }
    spawn_executors(shared, tasks);
    let executors = shared.live.borrow().settings.concurrency;
    for _ in 0..count.min(executors) {
        shared.executors.notify_one();
    }
    report_load(shared);
}

/// Starts executors for the waiting items, up to the concurrency.
fn spawn_executors(shared: &Arc<Shared>, tasks: &Tasks) {
    for _ in 0..shared.held_leases.take_missing_executors() {
        tasks.spawn("executor", executor::run(Arc::clone(shared)));
    }
}

fn claim_failed(shared: &Shared, request: &ClaimRequest) {
    let (now, chance) = (Instant::now(), shared.rng.chance());
    shared.held_leases.claim_failed(request, now, chance);
}

/// Settles, but no longer than for `max_hold`, so that no item stays held forever.
async fn settle_in_loop(shared: &Shared, pending: PendingSettle) {
    let until = Instant::now() + shared.live.borrow().settings.max_hold();
    settle_until(shared, shared.leases(), pending, until).await;
}

/// Retries a settle until it is answered, the lease is over or `until` has passed.
pub(crate) async fn settle_until(
    shared: &Shared,
    leases: &dyn LeaseStore,
    mut pending: PendingSettle,
    until: Instant,
) {
    let mut wait = RETRY_DELAY_MIN;
    let mut why = GivenUp::Unanswered;
    while Instant::now() < until && shared.held_leases.is_live(pending.no, Instant::now()) {
        let term = shared.live.borrow().settings.term.length();
        let bound = Instant::now() + less_margin(term) / 2;
        let settle = leases.settle(pending.sent_at(Instant::now()));
        match shared.call("settle", bound.min(until), settle).await {
            Ok(settlement) => {
                take_settled(shared, &pending, &settlement);
                return report_load(shared);
            }
            Err(error) if !error.is_transient() => {
                why = GivenUp::Rejected;
                break;
            }
            Err(_) => sleep(wait).await,
        }
        wait = (wait * 2).min(RETRY_DELAY_MAX);
    }
    let items = pending.settle.items.len();
    match why {
        GivenUp::Unanswered => warn!(items, "gave up a settle; its items will be released"),
        GivenUp::Rejected => warn!(items, "gave up a settle; the leases of its items lapse"),
    }
    shared.held_leases.abandon(pending, why, Instant::now());
    shared.claim_loops.notify_one();
}

/// Applies the answer of a settle and reports it.
fn take_settled(shared: &Shared, pending: &PendingSettle, settlement: &Settlement) {
    report_settled(shared, pending, settlement);
    let now = Instant::now();
    shared.held_leases.settled(pending.no, settlement, now);
}

fn report_settled(shared: &Shared, pending: &PendingSettle, settlement: &Settlement) {
    let settle = &pending.settle;
    if settlement.late {
        shared.metrics.count(SETTLED_LATE, &[], 1);
    }
    let mut counts: BTreeMap<(&str, OutcomeKind), u64> = BTreeMap::new();
    for ((id, outcome), (_, answer)) in settle.items.iter().zip(&settlement.items) {
        if answer.is_accepted() {
            let series = (pending.queues.get(*id), outcome.kind());
            *counts.entry(series).or_default() += 1;
        }
    }
    for ((queue, kind), count) in counts {
        let series = [("queue", queue), ("outcome", kind.as_str())];
        shared.metrics.count(SETTLED, &series, count);
        shared.outcomes().add(kind, count);
    }
    for (item, cause) in &settlement.failed {
        warn!(%item, cause, "the table rejected the settle of this row; its lease lapses");
    }
    let is_logged = |item| settlement.failed.iter().any(|(failed, _)| *failed == item);
    for (item, why) in settlement.refused().filter(|(item, _)| !is_logged(*item)) {
        let reason = [("reason", why.as_str())];
        shared.metrics.count(REFUSED, &reason, 1);
        if why == Refusal::OutOfTurn {
            let queue = pending.queues.get(item);
            error!(%item, queue, %why, "a settle was refused out of turn; this is a bug of Tenure");
        } else {
            let queue = pending.queues.get(item);
            warn!(%item, queue, %why, "a settle was refused; the lease had ended");
        }
    }
    report_calls(shared, settle, settlement);
    if let Some(sender) = &shared.config.sender
        && !settle.fan_out.is_empty()
    {
        sender.wake();
    }
}

/// Counts the settled calls and logs that the worker no longer renews their deliveries.
fn report_calls(shared: &Shared, settle: &Settle, settlement: &Settlement) {
    for call in &settle.calls {
        let is_refused = settlement.refused().any(|(id, _)| id == call.delivery);
        let (outcome, reason) = if is_refused {
            (AttemptOutcome::Superseded, "refused")
        } else {
            (call.outcome, "settled")
        };
        let (item, outcome) = (call.delivery, outcome.as_str());
        let outcome_label = [("outcome", outcome)];
        shared.metrics.count(DELIVERY_ATTEMPTS, &outcome_label, 1);
        debug!(%item, reason, outcome, "stopped renewing a delivery");
    }
}

pub(crate) fn report_load(shared: &Shared) {
    let load = shared.held_leases.load();
    let levels = [(RUNNING, load.running), (HELD, load.held)];
    for (name, level) in levels {
        shared.metrics.gauge(name, &[]).set(f64::from(level));
    }
}
