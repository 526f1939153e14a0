//! Replayer: takes the next steps of replays that are on record, whoever began them. It runs in
//! every process, without a leader; several at once never take the same step.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{ReplayOperation, StepReplay, Stepped};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::shared::Shared;

/// How often it looks when there is nothing to do, or the store does not answer.
const EVERY: Duration = Duration::from_secs(5);
/// Between two steps, so that it never takes the store from others.
const BREATH: Duration = Duration::from_millis(20);
/// How long a step may take.
const WAIT: Duration = Duration::from_mins(1);
/// Items in a step, unless its rate says less.
const ITEMS: u32 = 500;

/// Takes steps for as long as the engine runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = EVERY;
    loop {
        sleep(wait).await;
        let stepped = step(&shared).await.unwrap_or_default();
        if let Some(operation) = &stepped.operation {
            tell(&shared, operation);
        }
        wait = stepped.next_in.unwrap_or(EVERY).clamp(BREATH, EVERY);
    }
}

/// One step; `None`: the store did not answer.
async fn step(shared: &Shared) -> Option<Stepped> {
    shared.metrics.call("step_replay");
    let ask = StepReplay::new(ITEMS);
    let replays = shared.store.replay_operations();
    match timeout(WAIT, replays.step_replay(&ask)).await {
        Ok(Ok(stepped)) => Some(stepped),
        Ok(Err(error)) => {
            shared.metrics.store_error("step_replay", &error);
            let error = error.to_string();
            warn!(error, "the next step of a replay could not be taken");
            None
        }
        Err(_) => {
            shared.metrics.store_silence("step_replay");
            warn!("a step of a replay was not answered in time");
            None
        }
    }
}

/// What was put back may be claimed at once; what was the last of it is worth a line.
fn tell(shared: &Shared, operation: &ReplayOperation) {
    shared.wake();
    if let Some(sender) = &shared.config.sender {
        sender.wake();
    }
    if !operation.is_running() {
        let (id, replayed, refused) = (operation.id, operation.replayed, operation.refused);
        info!(replay = id, replayed, refused, "a replay is done");
    }
}
