//! Heartbeat: renews all leases, one statement per tick and term, on the thread and connections of
//! the keeper. *Refused* cancels the work of that lease only. *Failed* (a permanent error, or no
//! answer within the timeout) cancels the work of every lease in the statement, and the worker
//! settles none of their items. *Busy* (another transaction has locked the row) is retried at the
//! next tick, until the lease's own deadline.
//!
//! A lease is renewed until its last settle is answered.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::Guarded;
use tenure_core::store::{Answer, Renew, Renewed};
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::held::RenewalBatch;
use crate::held_lease::{LeaseNo, LossReason};
use crate::metrics::{HEARTBEATS, Metrics};
use crate::shared::Shared;

/// Delay before a failed renewal is repeated within its timeout.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Renews until the engine stops. Each term is renewed independently, so that a hanging renewal
/// does not delay leases of a shorter term.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut batches = FuturesUnordered::new();
    let mut under_way = BTreeSet::new();
    loop {
        let tuned = shared.tuned.notified();
        tokio::pin!(tuned);
        tuned.as_mut().enable();
        let now = Instant::now();
        // Each interval has four ticks, so that leases claimed since the last tick are renewed in
        // time; each tick renews all leases that are due before the next tick.
        let tick = shared.held_leases.tick();
        for batch in shared.held_leases.due_renewals(now + tick) {
            let term = batch.term;
            if under_way.insert(term) {
                let shared = &shared;
                batches.push(async move {
                    renew(shared, batch).await;
                    term
                });
            }
        }
        let ended = |term| {
            under_way.remove(&term);
        };
        drive(&mut batches, now + tick, tuned, ended).await;
    }
}

/// Polls futures until then, or until the settings change: the interval may be shorter then.
pub(crate) async fn drive<F: Future>(
    futures: &mut FuturesUnordered<F>,
    until: Instant,
    mut tuned: Pin<&mut Notified<'_>>,
    mut ended: impl FnMut(F::Output),
) {
    let until = sleep_until(until);
    tokio::pin!(until);
    loop {
        tokio::select! {
            biased;
            () = &mut until => return,
            () = &mut tuned => return,
            Some(output) = futures.next() => ended(output),
        }
    }
}

async fn renew(shared: &Shared, batch: RenewalBatch) {
    // A renewal ends before the next one is due, and well before the deadline.
    let bound = Instant::now() + batch.interval * 4 / 5;
    let tokens = batch.leases.iter().map(|(_, token)| token);
    let tokens = tokens.cloned().collect();
    let request = Renew::new(tokens, batch.term);
    let leases = batch.leases.len();
    let renewal = || shared.keeper_leases().renew(&request);
    match renew_until(&shared.metrics, "renew", bound, renewal).await {
        Ok((sent_at, answers)) => {
            shared.vitals.beat(Instant::now());
            let mut answers: HashMap<_, _> = answers.into_iter().collect();
            for (no, token) in &batch.leases {
                let Some(answer) = answers.remove(token) else {
                    count(shared, "busy", 1);
                    debug!("a lease was not renewed: its row is locked by a transaction");
                    continue;
                };
                apply(shared, *no, sent_at, answer);
            }
        }
        Err(reason) => {
            count(shared, "failed", leases);
            shared.vitals.missed_beat(Instant::now(), &reason);
            warn!(reason, leases, "a renewal failed");
            for (no, _) in &batch.leases {
                shared.lose(*no, LossReason::Failed, Some(&reason));
            }
        }
    }
}

fn count(shared: &Shared, answer: &str, leases: usize) {
    shared
        .metrics
        .count(HEARTBEATS, &[("answer", answer)], leases);
}

fn apply(shared: &Shared, no: LeaseNo, sent_at: Instant, answer: Guarded<Renewed>) {
    match answer {
        Guarded::Accepted(renewed) => {
            count(shared, "renewed", 1);
            let times = (sent_at, Instant::now());
            if let Some(lost) = shared.held_leases.renewed(no, times, &renewed) {
                shared.report_loss(&lost, None);
            }
        }
        Guarded::Refused(why) if shared.lose(no, LossReason::Refused(why), None) => {
            count(shared, "refused", 1);
        }
        Guarded::Refused(_) => debug!("stopped renewing a lease that was settled"),
    }
}

/// Repeats a renewal until it is answered, fails for good, or `bound` has passed. Returns the
/// moment before the answered call was sent.
pub(crate) async fn renew_until<'a, T>(
    metrics: &Metrics,
    verb: &'static str,
    bound: Instant,
    renew: impl Fn() -> Answer<'a, T>,
) -> Result<(Instant, T), String> {
    loop {
        let sent_at = Instant::now();
        match metrics.call(verb, bound, renew()).await {
            Ok(answers) => return Ok((sent_at, answers)),
            Err(error) if !error.is_transient() || Instant::now() + RETRY_DELAY >= bound => {
                return Err(error.to_string());
            }
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}
