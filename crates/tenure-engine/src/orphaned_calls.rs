//! Records calls whose lease is lost, because no settle can record them.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{AttemptOutcome, Call};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::attachment::OrphanedCall;
use crate::metrics::DELIVERY_ATTEMPTS;
use crate::shared::Shared;
use crate::tasks::Tasks;

/// Maximum number of attempts to record the calls. The records are informational.
const MAX_TRIES: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(200);
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Records the calls in a task of its own.
pub(crate) fn spawn(shared: &Arc<Shared>, tasks: &Tasks, orphans: Vec<OrphanedCall>) {
    if orphans.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    tasks.spawn("record", async move {
        let mut wait = RETRY_DELAY;
        for number in 1..=MAX_TRIES {
            if write(&shared, &orphans).await || number == MAX_TRIES {
                break;
            }
            sleep(wait).await;
            wait *= 2;
        }
        shared.held_leases.returned();
        shared.cleared.notify_waiters();
    });
}

/// Records the calls once; returns whether it succeeded.
pub(crate) async fn write(shared: &Shared, orphans: &[OrphanedCall]) -> bool {
    let now = Instant::now();
    let calls: Vec<Call> = orphans.iter().map(|orphan| orphan.to_call(now)).collect();
    let answer = shared.store.webhooks().record_calls(&calls, None);
    let answer = shared
        .metrics
        .call("record_calls", now + STORE_TIMEOUT, answer);
    let is_recorded = answer.await.is_ok();
    let calls = calls.len();
    if is_recorded {
        let outcome = [("outcome", AttemptOutcome::Superseded.as_str())];
        shared.metrics.count(DELIVERY_ATTEMPTS, &outcome, calls);
    } else {
        warn!(calls, "could not record calls whose lease is gone");
    }
    is_recorded
}
