//! Replayer: runs the next steps of bulk replays. It runs in every process, without a leader; two
//! replayers never run the same step.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{ReplayOperation, StepReplay, Stepped};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::shared::Shared;

/// Interval of the search for replays; also the delay after the store failed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Pause between two steps, for other work of the store.
const STEP_PAUSE: Duration = Duration::from_millis(20);
const STORE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum items per step; the rate of the replay may allow fewer.
const STEP_ITEMS: u32 = 500;

/// Runs steps until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = POLL_INTERVAL;
    loop {
        sleep(wait).await;
        let (request, until) = (StepReplay::new(STEP_ITEMS), Instant::now() + STORE_TIMEOUT);
        let step = shared.store.replay_operations().step_replay(&request);
        let stepped = shared.metrics.call("step_replay", until, step).await;
        let stepped = stepped.unwrap_or_else(|error| {
            // An outage is logged by the tasks that call the store all the time.
            if !error.is_transient() {
                warn!(%error, "could not run the next step of a replay");
            }
            Stepped::default()
        });
        if let Some(operation) = &stepped.operation {
            report(&shared, operation);
        }
        wait = stepped
            .next_in
            .unwrap_or(POLL_INTERVAL)
            .clamp(STEP_PAUSE, POLL_INTERVAL);
    }
}

/// Wakes the claim loops, since replayed items are due at once, and logs the end of a replay.
fn report(shared: &Shared, operation: &ReplayOperation) {
    shared.wake();
    if let Some(sender) = &shared.config.sender {
        sender.wake();
    }
    if !operation.is_running() {
        let (id, replayed, refused) = (operation.id, operation.replayed, operation.refused);
        info!(replay = id, replayed, refused, "a replay is done");
    }
}
