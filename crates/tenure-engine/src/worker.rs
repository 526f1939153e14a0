//! The one loop: wait, claim, settle. Two hands run it, three in a sender, so that one batch is
//! settled while the next is claimed; the slots do the work in between.
//!
//! A claim whose answer is lost is given back by its token. A settle whose answer is lost is said
//! again, which changes nothing the second time, for as long as the lease stands.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::store::{Claim, Company, Recovered, Rest, Settle, Settlement, StoreError};
use tenure_core::webhook::AttemptOutcome;
use tenure_core::{Held, Refusal, Token, Word};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{debug, error, info, warn};

use crate::beside::Ending;
use crate::chooser::{Chooser, Room};
use crate::config::{EngineConfig, Recovery};
use crate::desk::{Asked, Step, Work};
use crate::handler::Readiness;
use crate::hold::{InHand, less_margin};
use crate::reaper;
use crate::record;
use crate::shared::Shared;
use crate::slot;
use crate::tasks::Tasks;

/// How many claims and settles are under way at once.
const HANDS: u32 = 2;
/// Where claims are chosen first they are no part of a settle: there is one more to do.
const HANDS_CHOOSING: u32 = 3;

const AGAIN_SOONEST: Duration = Duration::from_millis(20);
const AGAIN_LATEST: Duration = Duration::from_secs(1);
/// How long the store may take to answer when a claim is given back; then it is asked again.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// What came of a call.
enum Answer<T> {
    Ok(T),
    /// It may have taken effect.
    Lost,
    /// It never will.
    Bad,
}

/// How many hands a worker of this configuration has.
pub(crate) fn hands(config: &EngineConfig) -> u32 {
    match config.chooser {
        None => HANDS,
        Some(_) => HANDS_CHOOSING,
    }
}

/// Runs one hand until the worker has stopped and nothing is in hand.
pub(crate) async fn run(shared: Arc<Shared>, tasks: Arc<Tasks>) {
    loop {
        let notified = shared.hands.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        hire(&shared, &tasks);
        let now = Instant::now();
        let is_ready = is_ready(&shared);
        match shared.desk.step(now, is_ready, || shared.mint()) {
            Step::Go(work) => {
                // The other hand may find more to do.
                shared.hands.notify_one();
                go(&shared, &tasks, *work).await;
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

/// Whether what items are handed to takes any. Tells once when claiming is held back, and once when
/// it goes on.
fn is_ready(shared: &Shared) -> bool {
    match shared.handler.readiness() {
        Readiness::Ready => {
            if shared.is_held_back.swap(false, Ordering::Relaxed) {
                shared.metrics.held_back.set(0.0);
                info!("resumed claims");
            }
            true
        }
        Readiness::Away { reason } => {
            if !shared.is_held_back.swap(true, Ordering::Relaxed) {
                shared.metrics.held_back.set(1.0);
                warn!(
                    reason,
                    "held back claims until what items are handed to takes them"
                );
            }
            false
        }
    }
}

async fn go(shared: &Arc<Shared>, tasks: &Tasks, work: Work) {
    record::spawn(shared, tasks, work.orphans);
    match (work.settle, work.claim) {
        (Some(ending), Some(asked)) => both(shared, tasks, ending, asked).await,
        (Some(ending), None) => settle_until_answered(shared, ending).await,
        (None, Some(asked)) => match &shared.config.chooser {
            None => {
                claim(shared, tasks, asked).await;
            }
            Some(chooser) => choose_and_claim(shared, tasks, chooser.as_ref(), asked).await,
        },
        (None, None) => {}
    }
}

async fn both(shared: &Arc<Shared>, tasks: &Tasks, mut ending: Ending, asked: Asked) {
    let ask = claim_of(shared, &asked);
    let settle = ending.sent_at(Instant::now());
    let call = shared.store.settle_and_claim(settle, &ask);
    let answer = bounded(shared, "settle_and_claim", bound(&asked), call).await;
    tell_recovered(shared, &ask);
    match answer {
        Answer::Ok((settlement, held)) => {
            tell_settled(shared, settle, &settlement);
            shared.desk.settled(ending.no, &settlement, Instant::now());
            take(shared, tasks, &asked, held);
        }
        Answer::Lost | Answer::Bad => {
            claim_failed(shared, tasks, &asked);
            settle_until_answered(shared, ending).await;
        }
    }
}

/// Asks which lanes there are to claim from, then claims.
async fn choose_and_claim(
    shared: &Arc<Shared>,
    tasks: &Tasks,
    chooser: &dyn Chooser,
    mut asked: Asked,
) {
    if chooser.is_known_idle(asked.look.company) {
        take(shared, tasks, &asked, None);
        return;
    }
    let room = Room {
        limit: asked.limit,
        places: shared.live.borrow().settings.concurrency,
        company: asked.look.company,
        in_hand: std::mem::take(&mut asked.in_hand),
    };
    let chosen = match chooser.choose_again(&room) {
        // The store was not asked: nothing is counted, and it has not shown that it is there.
        Some(lanes) => Answer::Ok(lanes),
        None => bounded(shared, "choose", bound(&asked), chooser.choose(&room)).await,
    };
    match chosen {
        Answer::Ok(lanes) if lanes.is_empty() => take(shared, tasks, &asked, None),
        Answer::Ok(lanes) => {
            asked.lanes = lanes;
            // Its lease is asked for only now.
            asked.sent_at = Instant::now();
            chooser.took(claim(shared, tasks, asked).await);
        }
        // Nothing was claimed, so there is nothing to give back.
        Answer::Lost | Answer::Bad => {
            let now = Instant::now();
            shared.desk.choice_failed(&asked, now, shared.dice.chance());
        }
    }
}

/// Claims, and says whether it brought all that was asked for.
async fn claim(shared: &Arc<Shared>, tasks: &Tasks, asked: Asked) -> bool {
    let ask = claim_of(shared, &asked);
    let call = shared.store.claim(&ask);
    let answer = bounded(shared, "claim", bound(&asked), call).await;
    tell_recovered(shared, &ask);
    match answer {
        Answer::Ok(held) => {
            let is_full = held.as_ref().is_some_and(|held| held.is_full);
            take(shared, tasks, &asked, held);
            is_full
        }
        Answer::Lost | Answer::Bad => {
            claim_failed(shared, tasks, &asked);
            false
        }
    }
}

fn claim_of(shared: &Shared, asked: &Asked) -> Claim {
    let rows = &shared.config.rows;
    let recovery = match rows.recovery {
        // The reaper runs beside us, and what it recovers is counted and told.
        Recovery::ByReaper => None,
        Recovery::InClaim => Some(shared.live.borrow().settings.lapse_policy()),
    };
    let mut claim = Claim::new(asked.token.clone(), asked.limit);
    if recovery.is_some() {
        claim = claim.recovered(Recovered::default());
    }
    let claim = claim
        .abreast(asked.abreast)
        .term(asked.look.rhythm.term)
        .queues(asked.look.queues.clone())
        .lanes(asked.lanes.clone())
        .kinds(rows.kinds.clone())
        .recovery(recovery);
    match asked.look.company {
        Company::Together => claim,
        Company::Alone => claim.alone(),
    }
}

/// Counts and tells what was reaped for a claim, as if the reaper had.
fn tell_recovered(shared: &Shared, ask: &Claim) {
    let reaped = ask.recovered.as_ref().map(Recovered::take);
    if let Some(reaped) = reaped.filter(|reaped| !reaped.is_empty()) {
        reaper::tell(shared, &reaped);
    }
}

/// A claim that takes longer than its own lease is of no use.
fn bound(asked: &Asked) -> Instant {
    InHand::deadline(asked.sent_at, asked.look.rhythm.term.length())
}

/// Puts what was claimed in line and sees that there are slots to work on it.
fn take(shared: &Arc<Shared>, tasks: &Tasks, asked: &Asked, held: Option<Held>) {
    let now = Instant::now();
    shared.vitals.claimed(now);
    if let Some(held) = &held {
        let count = u64::try_from(held.items.len()).unwrap_or(u64::MAX);
        shared.metrics.claimed.increment(count);
        for item in &held.items {
            let waited = held.lease.claimed_at.since(item.available_at);
            shared.metrics.pickup_seconds.record(waited.as_secs_f64());
        }
    }
    match shared.desk.claimed(asked, held, now, shared.dice.chance()) {
        Ok(count) => {
            if asked.look.rhythm.heartbeat < shared.live.borrow().heartbeat() {
                // Claimed before a change of the settings: the keeper must look sooner.
                shared.live.send_modify(|_| {});
            }
            hire(shared, tasks);
            let slots = shared.live.borrow().settings.concurrency;
            for _ in 0..count.min(slots) {
                shared.work.notify_one();
            }
            tell_load(shared);
        }
        Err(()) => give_back(shared, tasks, asked.token.clone()),
    }
}

/// Sees that there are as many slots as there is use for.
fn hire(shared: &Arc<Shared>, tasks: &Tasks) {
    for _ in 0..shared.desk.hire() {
        tasks.spawn("slot", slot::run(Arc::clone(shared)));
    }
}

fn claim_failed(shared: &Arc<Shared>, tasks: &Tasks, asked: &Asked) {
    let now = Instant::now();
    shared.desk.claim_failed(asked, now, shared.dice.chance());
    give_back(shared, tasks, asked.token.clone());
}

/// Gives back whatever was claimed under a token that nobody will work under; else it would be held
/// by nobody until the lease lapses.
fn give_back(shared: &Arc<Shared>, tasks: &Tasks, token: Token) {
    let shared = Arc::clone(shared);
    let term = shared.live.borrow().settings.term.length();
    let until = Instant::now() + term;
    info!("gave back a claim: its answer came too late or not at all");
    tasks.spawn("give back", async move {
        let release = Settle::new(token).rest(Rest::Release);
        let mut wait = AGAIN_SOONEST;
        // Beyond the term the reaper does it.
        while Instant::now() < until {
            let bound = until.min(Instant::now() + GIVE_BACK);
            shared.metrics.call("settle");
            if let Ok(Ok(_)) = timeout_at(bound, shared.store.settle(&release)).await {
                break;
            }
            sleep(wait).await;
            wait = (wait * 2).min(AGAIN_LATEST);
        }
        shared.desk.returned();
        shared.cleared.notify_waiters();
    });
}

/// Says a settle again and again until it is answered or the lease is over; but not for longer than
/// an item may be worked on, for nothing is held for ever.
async fn settle_until_answered(shared: &Shared, mut ending: Ending) {
    let mut wait = AGAIN_SOONEST;
    let until = Instant::now() + shared.live.borrow().settings.max_hold();
    while Instant::now() < until && shared.desk.is_live(ending.no, Instant::now()) {
        let term = shared.live.borrow().settings.term.length();
        let bound = Instant::now() + less_margin(term) / 2;
        let settle = ending.sent_at(Instant::now());
        match bounded(shared, "settle", bound, shared.store.settle(settle)).await {
            Answer::Ok(settlement) => {
                tell_settled(shared, settle, &settlement);
                shared.desk.settled(ending.no, &settlement, Instant::now());
                tell_load(shared);
                return;
            }
            Answer::Lost => {
                sleep(wait).await;
                wait = (wait * 2).min(AGAIN_LATEST);
            }
            Answer::Bad => break,
        }
    }
    let items = ending.settle.items.len();
    warn!(items, "gave up a settle; the lease lapses");
    shared.desk.abandon(ending, Instant::now());
}

/// Waits for an answer of the store, but not for ever.
async fn bounded<T>(
    shared: &Shared,
    verb: &'static str,
    until: Instant,
    call: tenure_core::store::Answer<'_, T>,
) -> Answer<T> {
    shared.metrics.call(verb);
    match timeout_at(until, call).await {
        Ok(Ok(answer)) => {
            shared.vitals.store_answered();
            Answer::Ok(answer)
        }
        Ok(Err(error)) => {
            shared.metrics.store_error(verb, &error);
            tell_store_error(shared, verb, &error);
            if error.is_transient() {
                Answer::Lost
            } else {
                Answer::Bad
            }
        }
        Err(_) => {
            shared.metrics.store_silence(verb);
            if shared
                .vitals
                .store_failed("the store did not answer in time")
            {
                warn!(verb, "the store did not answer in time");
            }
            Answer::Lost
        }
    }
}

/// Tells of a store that fails, once per reason until it answers again.
pub(crate) fn tell_store_error(shared: &Shared, verb: &'static str, error: &StoreError) {
    let text = error.to_string();
    if shared.vitals.store_failed(&text) {
        let hint = error.advice();
        warn!(verb, error = text, hint, "the store failed");
    }
}

pub(crate) fn tell_settled(shared: &Shared, settle: &Settle, settlement: &Settlement) {
    if settlement.late {
        shared.metrics.settled_late.increment(1);
    }
    for word in [Word::Done, Word::Retry, Word::Dead, Word::Release] {
        let kept = settle
            .items
            .iter()
            .zip(&settlement.items)
            .filter(|((_, outcome), (_, answer))| outcome.word() == word && answer.is_kept());
        let count = u64::try_from(kept.count()).unwrap_or(u64::MAX);
        if count > 0 {
            shared.metrics.settled(word, count);
            shared.tally.add(word, count);
        }
    }
    for (item, cause) in &settlement.failed {
        warn!(%item, cause, "the table refuses the end of this row; its lease lapses");
    }
    let told = |item| settlement.failed.iter().any(|(failed, _)| *failed == item);
    for (item, why) in settlement.refused().filter(|(item, _)| !told(*item)) {
        shared.metrics.refused(why);
        if why == Refusal::OutOfTurn {
            error!(%item, %why, "a settle was refused, which is a fault of Tenure");
        } else {
            warn!(%item, %why, "a settle was refused; another has the item now");
        }
    }
    tell_calls(shared, settle, settlement);
    if let Some(sender) = &shared.config.sender
        && !settle.fan_out.is_empty()
    {
        sender.wake();
    }
}

/// Counts the calls that were settled, and tells that their deliveries are renewed no longer.
fn tell_calls(shared: &Shared, settle: &Settle, settlement: &Settlement) {
    for call in &settle.calls {
        let is_refused = settlement.refused().any(|(id, _)| id == call.delivery);
        let outcome = if is_refused {
            AttemptOutcome::Superseded
        } else {
            call.outcome
        };
        shared.metrics.attempt(outcome);
        let item = call.delivery;
        let reason = if is_refused { "refused" } else { "settled" };
        let outcome = outcome.as_str();
        debug!(%item, reason, outcome, "stopped renewing a delivery");
    }
}

pub(crate) fn tell_load(shared: &Shared) {
    let load = shared.desk.load();
    shared.metrics.running.set(f64::from(load.running));
    shared.metrics.held.set(f64::from(load.held));
}
