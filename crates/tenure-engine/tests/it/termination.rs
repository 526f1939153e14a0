//! A worker that ends without being asked to: it is told, what it held is given back or reaped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::Item;
use tenure_engine::metrics::TERMINATED;
use tenure_engine::{Context, Handler, Handling, Readiness};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::faulty::{Ask, Fault};
use crate::identity::assert_calls_are_counted;
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe};
use crate::world::World;

/// A handler that panics where no handler may.
struct Rotten {
    inner: Box<dyn Handler>,
    is_rotten: Arc<AtomicBool>,
}

impl Handler for Rotten {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        self.inner.handle(item, cx)
    }

    fn readiness(&self) -> Readiness {
        assert!(!self.is_rotten.load(Ordering::Relaxed), "a planted panic");
        Readiness::Ready
    }
}

/// Proves: S1-059, S1-060, S1-061
#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_says_so_gives_back_what_it_holds_and_reaps() {
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let is_rotten = Arc::new(AtomicBool::new(false));
    let handler = Rotten {
        inner: Box::new(probe.working(|_| Duration::from_secs(80))),
        is_rotten: Arc::clone(&is_rotten),
    };
    let engine = world.start(handler, World::config());
    probe.begun(3).await;
    sleep(Duration::from_secs(1)).await;
    is_rotten.store(true, Ordering::Relaxed);
    let from = Instant::now();
    let reason = timeout(Duration::from_secs(5), engine.failed())
        .await
        .unwrap();
    assert!(reason.contains("hand"), "{reason}");
    world.assert_given_back(&probe, &ids).await;
    let later = world.faulty.since(from);
    assert!(
        later.iter().any(|ask| matches!(ask, Ask::Reap(_))),
        "the reaper ran"
    );
    let lines = log::said(engine.worker(), "terminated");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].level, Level::ERROR);
    assert!(lines[0].field("reason").contains("panicked"));
    assert_eq!(
        meter().count(engine.worker(), TERMINATED, &[("cause", "panic")]),
        1
    );
    assert_calls_are_counted(&world, engine.worker());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_does_not_wait_for_a_store_lease_by_lease() {
    let world = World::new();
    let probe = Probe::default();
    let is_rotten = Arc::new(AtomicBool::new(false));
    let handler = Rotten {
        inner: Box::new(probe.working(|_| Duration::from_secs(80))),
        is_rotten: Arc::clone(&is_rotten),
    };
    let engine = world.start(handler, World::config());
    for leases in 1..=5 {
        world.enqueue(1).await;
        probe.begun(leases).await;
    }
    let is_silent = |ask: &Ask| matches!(ask, Ask::Settle(_) | Ask::Reap(_));
    world
        .faulty
        .rule(move |ask| is_silent(ask).then_some(Fault::Hang));
    is_rotten.store(true, Ordering::Relaxed);
    engine.wake();
    let reap = engine.settings().reaper_interval();
    let from = Instant::now();
    timeout(Duration::from_mins(1), engine.failed())
        .await
        .unwrap();
    let took = from.elapsed();
    assert!(took < Duration::from_secs(3) + reap, "{took:?}");
    let settles = world.faulty.count(|ask| matches!(ask, Ask::Settle(_)));
    assert!(settles >= 5, "each is tried: {settles}");
}

/// A vanished worker's items run again within a term, a reaper's interval and a second.
#[tokio::test(start_paused = true)]
async fn the_work_of_a_vanished_worker_is_soon_done_by_another() {
    let world = World::new();
    let ids = world.enqueue(5).await;
    let lost = Probe::default();
    let doomed = world.start(lost.working(|_| Duration::from_secs(80)), World::config());
    lost.begun(5).await;
    let probe = Probe::default();
    let other = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
    sleep(Duration::from_secs(20)).await;
    assert!(probe.calls().is_empty(), "they are held");
    drop(doomed);
    let vanished_at = Instant::now();
    probe.begun(5).await;
    let settings = other.settings();
    let most = settings.term.length() + settings.reaper_interval() + Duration::from_secs(1);
    for id in ids {
        let began = probe.of(id)[0].began;
        assert!(began - vanished_at <= most, "{:?}", began - vanished_at);
    }
    world.until(|counts| counts.done == 5).await;
    assert!(
        lost.calls()
            .iter()
            .all(|call| call.end == Some(End::Dropped))
    );
}
