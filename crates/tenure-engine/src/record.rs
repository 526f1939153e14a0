//! Writes down calls whose hold is gone: no settle goes with them any more.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{AttemptOutcome, Call};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::beside::Orphan;
use crate::shared::Shared;
use crate::tasks::Tasks;

/// So often it is tried; it is a note for people, and nothing depends on it.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_millis(200);
/// How long the store may take to answer.
const WAIT: Duration = Duration::from_secs(5);

/// Writes them down beside everything else.
pub(crate) fn spawn(shared: &Arc<Shared>, tasks: &Tasks, orphans: Vec<Orphan>) {
    if orphans.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    tasks.spawn("record", async move {
        let mut wait = AGAIN;
        for _ in 1..TRIES {
            if write(&shared, &orphans).await {
                break;
            }
            sleep(wait).await;
            wait *= 2;
        }
        shared.desk.returned();
        shared.cleared.notify_waiters();
    });
}

/// Tries once.
pub(crate) async fn write(shared: &Shared, orphans: &[Orphan]) -> bool {
    let now = Instant::now();
    let calls: Vec<Call> = orphans.iter().map(|orphan| orphan.to_call(now)).collect();
    shared.metrics.call("record_calls");
    let answer = shared.store.webhooks().record_calls(&calls, None);
    match timeout(WAIT, answer).await {
        Ok(Ok(())) => {
            for _ in &calls {
                shared.metrics.attempt(AttemptOutcome::Superseded);
            }
            return true;
        }
        Ok(Err(error)) => shared.metrics.store_error("record_calls", &error),
        Err(_) => shared.metrics.store_silence("record_calls"),
    }
    let calls = calls.len();
    warn!(calls, "could not write down calls whose hold is gone");
    false
}
