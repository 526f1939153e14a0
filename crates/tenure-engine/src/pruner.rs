//! Pruner: deletes settled items past their retention, in rounds until none is left.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Prune;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::pace::spread;
use crate::shared::Shared;

const POLL_INTERVAL: Duration = Duration::from_mins(1);
const STORE_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two rounds, for other work of the store.
const ROUND_PAUSE: Duration = Duration::from_millis(20);

/// Prunes until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        sleep(spread(POLL_INTERVAL, shared.rng.chance())).await;
        let mut done = 0;
        let mut dead = 0;
        loop {
            let prune = {
                let live = shared.live.borrow();
                let settings = &live.settings;
                Prune::new(settings.retention_published, settings.retention_dead)
            };
            shared.metrics.call("prune");
            let call = timeout(STORE_TIMEOUT, shared.store.prune(&prune));
            let Ok(answer) = call.await else {
                shared.metrics.store_timeout("prune");
                warn!("a prune round timed out");
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
                    warn!(error = error.to_string(), "a prune round failed");
                    break;
                }
            }
            sleep(ROUND_PAUSE).await;
        }
        if done + dead > 0 {
            shared.metrics.pruned("done", done);
            shared.metrics.pruned("dead", dead);
            info!(done, dead, "pruned items past their retention");
        }
    }
}
