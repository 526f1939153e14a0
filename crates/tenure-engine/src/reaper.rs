//! Reaper: ends lapsed leases at each interval. It runs in every process, without a leader;
//! concurrent reapers end each lease once.
//!
//! After an outage of the store, the leases of every worker may have lapsed, and the workers
//! release by token what no handler had begun. The reaper waits one heartbeat for that, because a
//! reap counts a crash.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Reap, Reaped};
use tenure_core::{ItemId, State};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::Leases;
use crate::item_label::{ItemLabel, log_item};
use crate::metrics::{REAPER_RUNS, RUNS_TOTAL};
use crate::pace::spread;
use crate::shared::Shared;
use crate::tasks::Tasks;

const LEASES_PER_STATEMENT: u32 = 100;
const ITEM_IS_DEAD: &str = "a lease lapsed too often; its item is dead";
const FIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum statements of a run; the rest waits for the next run.
const STATEMENTS_PER_RUN: u32 = 1000;
/// Slightly longer than the first delay after a lapse, so that the item is due when the worker
/// polls.
const WAKE_DELAY: Duration = Duration::from_millis(110);

/// Reaps until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>, tasks: Arc<Tasks>) {
    loop {
        let wait = if let Some(delay) = shared.reap_delay() {
            delay
        } else {
            let interval = shared.live.borrow().settings.reaper_interval();
            reap(&shared, &tasks).await;
            // Never longer than the interval: readiness and recovery rely on it.
            spread(interval, shared.rng.chance()).min(interval)
        };
        tokio::select! {
            biased;
            () = shared.reaper.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

/// Reaps until no lapsed lease is left or the store fails.
pub(crate) async fn reap(shared: &Arc<Shared>, tasks: &Tasks) {
    let (policy, interval) = {
        let settings = &shared.live.borrow().settings;
        (settings.lapse_policy(), settings.reaper_interval())
    };
    let request = Reap::new(LEASES_PER_STATEMENT, policy);
    // The timeout applies to each statement. So a store that does not answer shows as a missing
    // reaper run, but a store with many lapsed leases does not.
    let bound = interval.max(Duration::from_secs(1));
    let mut count = 0;
    for _ in 0..STATEMENTS_PER_RUN {
        let reap = shared.leases().reap(&request);
        let Ok(reaped) = shared.call("reap", Instant::now() + bound, reap).await else {
            return;
        };
        shared.vitals.reaped(Instant::now());
        if reaped.is_empty() {
            break;
        }
        count += reaped.len();
        report(shared, &reaped).await;
    }
    for name in [REAPER_RUNS, RUNS_TOTAL] {
        shared.metrics.count(name, &[], 1);
    }
    if count > 0 {
        // Items that lapsed for the first time are due when this delay is over.
        let shared = Arc::clone(shared);
        tasks.spawn("wake", async move {
            sleep(WAKE_DELAY).await;
            shared.wake();
            if let Some(sender) = &shared.config.sender {
                sender.wake();
            }
        });
    }
}

/// Counts and logs reaped items. Any worker may have held them, so they do not count as outcomes of
/// this worker.
pub(crate) async fn report(shared: &Shared, reaped: &[Reaped]) {
    for item in reaped {
        shared.metrics.reaped(item.stale);
    }
    let dead: Vec<_> = reaped
        .iter()
        .filter(|item| item.state == State::Dead)
        .collect();
    info!(
        items = reaped.len(),
        dead = dead.len(),
        "reaped lapsed leases"
    );
    let labels = labels(shared, &dead).await;
    for item in dead {
        let (holder, stale) = (&item.holder, item.stale);
        if let Some(label) = labels.iter().find(|label| label.id == item.id) {
            log_item!(warn, label, holder, ?stale, "{ITEM_IS_DEAD}");
        } else {
            warn!(item = %item.id, holder, ?stale, "{ITEM_IS_DEAD}");
        }
    }
}

/// Reads what the log tells about dead items. Rows of a lease table have only their id.
async fn labels(shared: &Shared, dead: &[&Reaped]) -> Vec<ItemLabel> {
    if dead.is_empty() || !matches!(shared.config.rows.leases, Leases::Events) {
        return Vec::new();
    }
    let ids: Vec<ItemId> = dead.iter().map(|item| item.id).collect();
    let until = Instant::now() + FIND_TIMEOUT;
    let found = shared.call("find", until, shared.store.find(&ids)).await;
    let records = found.unwrap_or_default();
    records.iter().map(ItemLabel::of_record).collect()
}
