//! Reaper: ends lapsed leases at a fixed pace. It runs in every process, without a leader; several
//! at once end each lease once.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::State;
use tenure_core::store::{Reap, Reaped};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::pace::spread;
use crate::shared::Shared;
use crate::tasks::Tasks;
use crate::worker;

/// Leases per statement.
const LEASES: u32 = 100;
/// Statements per run; the rest waits for the next one.
const ROUNDS: u32 = 1000;
/// A little later than the first delay after a lapse, so that the item is due.
const WAKE_AFTER: Duration = Duration::from_millis(110);

/// Reaps for as long as the engine runs.
pub(crate) async fn run(shared: Arc<Shared>, tasks: Arc<Tasks>) {
    loop {
        let interval = shared.live.borrow().settings.reaper_interval();
        reap(&shared, &tasks).await;
        // Never later than the interval: readiness and recovery are promised by it.
        let wait = spread(interval, shared.dice.chance()).min(interval);
        tokio::select! {
            biased;
            () = shared.reaper.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

/// One run: until nothing is left that has lapsed, or the store fails.
pub(crate) async fn reap(shared: &Arc<Shared>, tasks: &Tasks) {
    let (policy, interval) = {
        let settings = &shared.live.borrow().settings;
        (settings.lapse_policy(), settings.reaper_interval())
    };
    let ask = Reap::new(LEASES, policy);
    // Each statement by itself, so that a store that never answers is seen as a reaper that does
    // not run, and one that has much to end is not.
    let bound = interval.max(Duration::from_secs(1));
    let mut count = 0;
    for _ in 0..ROUNDS {
        shared.metrics.call("reap");
        match timeout(bound, shared.store.reap(&ask)).await {
            Ok(Ok(reaped)) => {
                shared.vitals.reaped(Instant::now());
                if reaped.is_empty() {
                    break;
                }
                count += reaped.len();
                tell(shared, &reaped);
            }
            Ok(Err(error)) => {
                shared.metrics.store_error("reap", &error);
                worker::tell_store_error(shared, "reap", &error);
                return;
            }
            Err(_) => {
                shared.metrics.store_silence("reap");
                if shared
                    .vitals
                    .store_failed("the store did not answer in time")
                {
                    warn!(verb = "reap", "the store did not answer in time");
                }
                return;
            }
        }
    }
    shared.metrics.reaper_runs.increment(1);
    if count > 0 {
        // What lapsed for the first time is due in a moment.
        let shared = Arc::clone(shared);
        tasks.spawn("wake", async move {
            sleep(WAKE_AFTER).await;
            shared.wake();
            if let Some(sender) = &shared.config.sender {
                sender.wake();
            }
        });
    }
}

/// Counts and tells what was reaped. It may have been in anybody's hands, so that it is not in the
/// tally of this worker.
pub(crate) fn tell(shared: &Shared, reaped: &[Reaped]) {
    let count = u64::try_from(reaped.len()).unwrap_or(u64::MAX);
    shared.metrics.reaper_recovered.increment(count);
    for item in reaped {
        shared.metrics.stale(item.stale);
        let (id, holder, stale) = (item.id.number(), &item.holder, item.stale);
        if item.state == State::Dead {
            warn!(
                item = id,
                holder,
                ?stale,
                "a lease lapsed once too often; its item is dead"
            );
        }
    }
    let dead = reaped
        .iter()
        .filter(|item| item.state == State::Dead)
        .count();
    info!(items = count, dead, "reaped lapsed leases");
}
