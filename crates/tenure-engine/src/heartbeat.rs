//! Heartbeat: renews all that is held, one statement per tick and term, on connections and a thread
//! of its own. *Refused* cancels the work of that lease only; *failed* (no answer within the bound)
//! cancels the work of every lease that was to be renewed, and nothing of it is settled. *Busy*
//! (its row is in somebody's transaction) is asked for again at the next look, until its own
//! deadline.
//!
//! A lease is renewed until its last settle has been answered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::Guarded;
use tenure_core::store::{Renew, Renewed};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{debug, warn};

use crate::desk::Beat;
use crate::hold::{LeaseNo, Loss};
use crate::shared::Shared;

/// How soon a renewal that failed is tried again, within its bound.
const AGAIN: Duration = Duration::from_millis(50);

/// Renews for as long as the engine runs. The terms do not wait for each other: a renewal that
/// hangs must not keep leases of a shorter term from theirs.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut beats = FuturesUnordered::new();
    let mut under_way = BTreeSet::new();
    loop {
        let tuned = shared.tuned.notified();
        tokio::pin!(tuned);
        tuned.as_mut().enable();
        let now = Instant::now();
        // Looked at four times per interval, so that a lease claimed since is never late; what is
        // due before the next look is renewed now.
        let tick = shared.desk.tick();
        for beat in shared.desk.beats(now + tick) {
            let term = beat.term;
            if under_way.insert(term) {
                let shared = &shared;
                beats.push(async move {
                    renew(shared, beat).await;
                    term
                });
            }
        }
        let look = sleep_until(now + tick);
        tokio::pin!(look);
        loop {
            tokio::select! {
                biased;
                () = &mut look => break,
                // There is a shorter interval than there was.
                () = &mut tuned => break,
                Some(term) = beats.next() => {
                    under_way.remove(&term);
                }
            }
        }
    }
}

async fn renew(shared: &Shared, beat: Beat) {
    // A beat ends before the next one is due, and well before the deadline.
    let bound = Instant::now() + beat.interval * 4 / 5;
    let tokens = beat.leases.iter().map(|(_, token)| token.clone()).collect();
    let ask = Renew::new(tokens, beat.term);
    let leases = u64::try_from(beat.leases.len()).unwrap_or(u64::MAX);
    match ask_until(shared, &ask, bound).await {
        Ok((sent_at, answers)) => {
            shared.vitals.beat(Instant::now());
            let mut answers: HashMap<_, _> = answers.into_iter().collect();
            for (no, token) in &beat.leases {
                let Some(answer) = answers.remove(token) else {
                    shared.metrics.heartbeats("busy", 1);
                    debug!("a lease was not renewed: its row is in a transaction");
                    continue;
                };
                take(shared, *no, sent_at, answer);
            }
        }
        Err(reason) => {
            shared.metrics.heartbeats("failed", leases);
            shared.vitals.missed_beat(Instant::now(), &reason);
            warn!(reason, leases, "a renewal failed");
            for (no, _) in &beat.leases {
                if let Some(lost) = shared.desk.lose(*no, Loss::Failed, Instant::now()) {
                    shared.tell_loss(&lost, Some(&reason));
                }
            }
        }
    }
}

fn take(shared: &Shared, no: LeaseNo, sent_at: Instant, answer: Guarded<Renewed>) {
    let lost = match answer {
        Guarded::Kept(renewed) => {
            shared.metrics.heartbeats("kept", 1);
            shared.desk.renewed(no, (sent_at, Instant::now()), &renewed)
        }
        Guarded::Refused(why) => {
            let lost = shared.desk.lose(no, Loss::Refused(why), Instant::now());
            if lost.is_some() {
                shared.metrics.heartbeats("refused", 1);
            } else {
                debug!("stopped renewing a lease that was settled");
            }
            lost
        }
    };
    if let Some(lost) = lost {
        shared.tell_loss(&lost, None);
    }
}

type Answers = Vec<(tenure_core::Token, Guarded<Renewed>)>;

/// Asks until there is an answer or the bound has come; a renewal may be repeated. The moment is
/// the one before the call that was answered.
async fn ask_until(
    shared: &Shared,
    ask: &Renew,
    bound: Instant,
) -> Result<(Instant, Answers), String> {
    let mut reason = "the store did not answer in time".to_owned();
    loop {
        let sent_at = Instant::now();
        shared.metrics.call("renew");
        match timeout_at(bound, shared.keeper_store.renew(ask)).await {
            Ok(Ok(answers)) => return Ok((sent_at, answers)),
            Ok(Err(error)) => {
                shared.metrics.store_error("renew", &error);
                reason = error.to_string();
                if !error.is_transient() {
                    return Err(reason);
                }
            }
            Err(_) => shared.metrics.store_silence("renew"),
        }
        if Instant::now() + AGAIN >= bound {
            return Err(reason);
        }
        sleep(AGAIN).await;
    }
}
