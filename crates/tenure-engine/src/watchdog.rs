//! Watchdog: cancels work at the local deadline of its lease, without asking the store; fails
//! handlers that exceed `max_hold`; and releases items that were claimed ahead and not started in
//! time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use tenure_core::{Failure, Outcome};
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::attachment::Attachment;
use crate::claim_loop::{report_load, settle_until};
use crate::handler::Failed;
use crate::heartbeat::drive;
use crate::held::OverdueItem;
use crate::held_lease::LossReason;
use crate::item_label::log_item;
use crate::metrics::OVERDUE;
use crate::shared::Shared;

/// Interval at which an overdue item checks that the earlier items of its run are settled.
const TURN_POLL: Duration = Duration::from_millis(50);

/// Watches until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ends = FuturesUnordered::new();
    loop {
        let tuned = shared.tuned.notified();
        tokio::pin!(tuned);
        tuned.as_mut().enable();
        let now = Instant::now();
        for no in shared.held_leases.late(now) {
            shared.lose(no, LossReason::Late, None);
        }
        for overdue in shared.held_leases.take_overdue(now) {
            shared.metrics.count(OVERDUE, &[], 1);
            let max_hold = overdue.running.max_hold;
            log_item!(
                warn,
                overdue.running.label,
                ?max_hold,
                "cancelled a handler that exceeded the maximum hold"
            );
            ends.push(end(Arc::clone(&shared), overdue));
        }
        let items = shared.held_leases.give_back_stale(now);
        if items > 0 {
            info!(
                items,
                "released items that were not started within two terms"
            );
            shared.claim_loops.notify_one();
        }
        report_load(&shared);
        // A lease claimed during the sleep ends after the sleep.
        let tick = shared.held_leases.tick();
        let next = shared.held_leases.next_end().unwrap_or(now + tick);
        drive(&mut ends, next.min(now + tick), tuned, drop).await;
    }
}

/// Settles an overdue item from the keeper's thread, because the handler may block its own thread.
/// Retries for one term; then the lease of the item lapses.
async fn end(shared: Arc<Shared>, overdue: OverdueItem) {
    let running = overdue.running;
    let max_hold = tenure_core::duration_text(running.max_hold);
    let failure = Failure::new(format!("processing time exceeded: longer than {max_hold}"));
    let outcome = shared.judge(&Failed {
        failures: running.failures,
        endpoint: running.delivery.map(|(endpoint, _)| endpoint),
        failure: &failure,
        retry: running.retry,
        chance: shared.rng.chance(),
    });
    let mut pending = overdue.pending;
    pending.add(overdue.id, outcome, running.call.take());
    pending.running = Some(overdue.id);
    // The later items are released even if the next one could start, because this handler may still
    // run.
    for id in overdue.behind {
        pending.add(id, Outcome::RELEASE, Attachment::Nothing);
    }
    let until = Instant::now() + overdue.term.length();
    while Instant::now() < until && !shared.held_leases.is_its_turn(overdue.id, &pending) {
        sleep(TURN_POLL).await;
    }
    settle_until(&shared, shared.keeper_leases(), pending, until).await;
    shared.claim_loops.notify_one();
}
