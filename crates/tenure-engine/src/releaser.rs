//! Releaser: sends the pending releases, one after the other, until the store has answered all of
//! them. It runs while a release is pending, and its calls show when the store answers again.
//!
//! The guard of the store decides: it refuses the release of an item whose lease a reaper has
//! ended. Reapers leave the holders time for it (`reaper.rs`).

use std::sync::Arc;
use std::time::Duration;

use tenure_core::OutcomeKind;
use tenure_core::store::Settlement;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use crate::held::PendingRelease;
use crate::metrics::{REFUSED, SETTLED};
use crate::shared::Shared;
use crate::tasks::Tasks;

/// Longest timeout of one release.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);
/// Delay of the second release of a claim of which the store knows nothing.
const SECOND_LOOK_DELAY: Duration = Duration::from_secs(1);

/// Number of released items, and of those whose release was refused.
#[derive(Default)]
struct Released {
    of_leases: usize,
    of_claims: u32,
    refused: usize,
}

/// Sends the pending releases in a task of its own.
pub(crate) fn spawn(shared: &Arc<Shared>, tasks: &Tasks) {
    let shared = Arc::clone(shared);
    tasks.spawn("release", async move { run(&shared).await });
}

async fn run(shared: &Shared) {
    let mut wait = RETRY_DELAY_MIN;
    let mut released = Released::default();
    while let Some(mut pending) = shared.held_leases.next_release() {
        if Instant::now() < pending.due_at {
            released.log();
            sleep_until(pending.due_at).await;
        }
        // After an outage the reapers wait one heartbeat: the release must arrive before.
        let heartbeat = shared.live.borrow().heartbeat();
        let until = Instant::now() + RELEASE_TIMEOUT.min(heartbeat / 2);
        let settle = shared.leases().settle(&pending.settle);
        match shared.call("settle", until, settle).await {
            Ok(settlement) => {
                wait = RETRY_DELAY_MIN;
                released.add(shared, &pending, &settlement);
                if pending.is_of_claim() && settlement.rest == 0 && !pending.is_second_look {
                    pending.is_second_look = true;
                    pending.due_at = Instant::now() + SECOND_LOOK_DELAY;
                    shared.held_leases.release_again(pending);
                }
            }
            Err(error) if error.is_transient() => {
                // Behind all others: one release that fails must not delay them.
                pending.due_at = Instant::now();
                shared.held_leases.release_again(pending);
                sleep(wait).await;
                wait = (wait * 2).min(RETRY_DELAY_MAX).min(heartbeat / 8);
            }
            Err(error) => {
                let error = error.to_string();
                warn!(error, "could not release items; their leases lapse");
            }
        }
        shared.claim_loops.notify_one();
    }
    released.log();
    shared.claim_loops.notify_one();
    shared.cleared.notify_waiters();
}

impl Released {
    fn add(&mut self, shared: &Shared, pending: &PendingRelease, settlement: &Settlement) {
        self.of_claims += settlement.rest;
        for (id, answer) in &settlement.items {
            if let Some(why) = answer.refusal() {
                let reason = [("reason", why.as_str())];
                shared.metrics.count(REFUSED, &reason, 1);
                debug!(item = %id, %why, "a release was refused: the lease has ended");
                self.refused += 1;
            } else {
                let release = OutcomeKind::Release;
                let queue = pending.queues.get(*id);
                let series = [("queue", queue), ("outcome", release.as_str())];
                shared.metrics.count(SETTLED, &series, 1);
                shared.outcomes().add(release, 1);
                self.of_leases += 1;
            }
        }
    }

    /// Logs the releases since the last call.
    fn log(&mut self) {
        let Self {
            of_leases,
            of_claims,
            refused,
        } = std::mem::take(self);
        if of_leases + refused > 0 {
            info!(
                items = of_leases,
                refused, "released items of lost leases; no crash is counted for them"
            );
        }
        if of_claims > 0 {
            info!(
                items = of_claims,
                "released a claim whose answer came too late or not at all"
            );
        }
    }
}
