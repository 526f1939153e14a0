//! Watchdog: takes work away from whoever works on it when the local deadline of its lease has
//! come, whatever the store says or does not say; ends what runs longer than the longest hold; and
//! gives back what was claimed ahead and is not started in time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::{Failure, Outcome};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::beside::Beside;
use crate::desk::Overdue;
use crate::handler::Failed;
use crate::hold::Loss;
use crate::shared::Shared;
use crate::worker::{tell_load, tell_settled};

/// How soon the settle of an overdue item is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// Watches for as long as the engine runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ends = FuturesUnordered::new();
    loop {
        let tuned = shared.tuned.notified();
        tokio::pin!(tuned);
        tuned.as_mut().enable();
        let now = Instant::now();
        for no in shared.desk.late(now) {
            if let Some(lost) = shared.desk.lose(no, Loss::Late, now) {
                shared.tell_loss(&lost, None);
            }
        }
        for overdue in shared.desk.take_overdue(now) {
            shared.metrics.overdue.increment(1);
            let max_hold = overdue.max_hold;
            warn!(
                item = %overdue.id,
                ?max_hold,
                "cut a handler at the longest hold"
            );
            ends.push(end(Arc::clone(&shared), overdue));
        }
        let items = shared.desk.give_back_stale(now);
        if items > 0 {
            info!(items, "gave back what was not started within two terms");
            shared.hands.notify_one();
        }
        tell_load(&shared);
        // A lease that is claimed while this sleeps ends later than the sleep.
        let tick = shared.desk.tick();
        let next = shared.desk.next_end().unwrap_or(now + tick);
        let end = sleep_until(next.min(now + tick));
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => break,
                // There is a shorter interval than there was.
                () = &mut tuned => break,
                Some(()) = ends.next() => {}
            }
        }
    }
}

/// Settles an overdue item from here: the handler's own executor may stand still. Tries for a term;
/// then the lease lapses, for nothing is held for ever.
async fn end(shared: Arc<Shared>, overdue: Overdue) {
    let max_hold = tenure_core::duration_text(overdue.max_hold);
    let failure = Failure::new(format!("processing time exceeded: longer than {max_hold}"));
    let outcome = shared.judge(&Failed {
        failures: overdue.failures,
        endpoint: overdue.endpoint,
        failure: &failure,
        chance: shared.dice.chance(),
    });
    let mut ending = overdue.ending;
    ending.add(overdue.id, outcome, overdue.call);
    // Even if the next one had its turn now: this handler may not have stopped yet.
    for id in overdue.behind {
        ending.add(id, Outcome::RELEASE, Beside::Nothing);
    }
    let until = Instant::now() + overdue.term.length();
    while Instant::now() < until && shared.desk.is_live(ending.no, Instant::now()) {
        if !shared.desk.is_its_turn(overdue.id, &ending) {
            sleep(AGAIN).await;
            continue;
        }
        shared.metrics.call("settle");
        let settle = ending.sent_at(Instant::now());
        match timeout_at(until, shared.keeper_store.settle(settle)).await {
            Ok(Ok(settlement)) => {
                tell_settled(&shared, settle, &settlement);
                shared.desk.settled(ending.no, &settlement, Instant::now());
                shared.hands.notify_one();
                return;
            }
            Ok(Err(error)) => {
                shared.metrics.store_error("settle", &error);
                if !error.is_transient() {
                    break;
                }
                sleep(AGAIN).await;
            }
            Err(_) => shared.metrics.store_silence("settle"),
        }
    }
    warn!(item = %overdue.id, "gave up a settle; the lease lapses");
    shared.desk.abandon(ending, Instant::now());
    shared.hands.notify_one();
}
