//! Pruner: deletes settled items past their retention, in rounds until none is left.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Prune;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::metrics::PRUNED;
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
            let until = Instant::now() + STORE_TIMEOUT;
            let answer = shared.store.prune(&prune);
            match shared.metrics.call("prune", until, answer).await {
                Ok(pruned) => {
                    done += pruned.done + pruned.jobs_completed;
                    dead += pruned.dead + pruned.jobs_failed;
                    if !pruned.more {
                        break;
                    }
                }
                // An outage is logged by the tasks that call the store all the time.
                Err(error) if error.is_transient() => break,
                Err(error) => {
                    warn!(error = error.to_string(), "a prune round failed");
                    break;
                }
            }
            sleep(ROUND_PAUSE).await;
        }
        if done + dead > 0 {
            shared.metrics.count(PRUNED, &[("state", "done")], done);
            shared.metrics.count(PRUNED, &[("state", "dead")], dead);
            info!(done, dead, "pruned items past their retention");
        }
    }
}
