//! Pruner: deletes settled items past their retention, round after round until none is left.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Prune;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::pace::spread;
use crate::shared::Shared;

/// How often it looks.
const EVERY: Duration = Duration::from_mins(1);
/// How long a round may take.
const WAIT: Duration = Duration::from_mins(1);
/// Between two rounds, so that it never takes the store from others.
const BREATH: Duration = Duration::from_millis(20);

/// Prunes for as long as the engine runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        sleep(spread(EVERY, shared.dice.chance())).await;
        let mut done = 0;
        let mut dead = 0;
        loop {
            let ask = {
                let live = shared.live.borrow();
                let settings = &live.settings;
                Prune::new(settings.retention_published, settings.retention_dead)
            };
            shared.metrics.call("prune");
            let call = timeout(WAIT, shared.store.prune(&ask));
            let Ok(answer) = call.await else {
                shared.metrics.store_silence("prune");
                warn!("a round of pruning was not answered in time");
                break;
            };
            match answer {
                Ok(pruned) => {
                    done += pruned.done + pruned.jobs_completed;
                    dead += pruned.dead + pruned.jobs_failed;
                    if !pruned.more {
                        break;
                    }
                }
                Err(error) => {
                    shared.metrics.store_error("prune", &error);
                    warn!(
                        error = error.to_string(),
                        "the pruner could not reach the store"
                    );
                    break;
                }
            }
            sleep(BREATH).await;
        }
        if done + dead > 0 {
            shared.metrics.pruned("done", done);
            shared.metrics.pruned("dead", dead);
            info!(done, dead, "pruned items past their retention");
        }
    }
}
