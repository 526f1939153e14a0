//! Failure of an engine: it reports the failure, and its items are released or reaped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::Item;
use tenure_engine::metrics::TERMINATED;
use tenure_engine::{Context, Handler, Handling, Readiness};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::faulty_store::{Fault, Verb};
use crate::identity::assert_calls_are_counted;
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe};
use crate::world::World;

/// A handler that panics outside `handle`.
struct PanickingReadiness {
    inner: Box<dyn Handler>,
    panics: Arc<AtomicBool>,
}

impl Handler for PanickingReadiness {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        self.inner.handle(item, cx)
    }

    fn readiness(&self) -> Readiness {
        assert!(!self.panics.load(Ordering::Relaxed), "a planted panic");
        Readiness::Ready
    }
}

/// Proves: S1-059, S1-060, S1-061
#[tokio::test(start_paused = true)]
async fn a_failed_engine_reports_the_failure_releases_its_items_and_reaps() {
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let panics = Arc::new(AtomicBool::new(false));
    let handler = PanickingReadiness {
        inner: Box::new(probe.working(|_| Duration::from_secs(80))),
        panics: Arc::clone(&panics),
    };
    let engine = world.start(handler, World::config());
    probe.begun(3).await;
    sleep(Duration::from_secs(1)).await;
    panics.store(true, Ordering::Relaxed);
    let from = Instant::now();
    let reason = timeout(Duration::from_secs(5), engine.failed())
        .await
        .unwrap();
    assert!(reason.contains("claim loop"), "{reason}");
    world.assert_released(&probe, &ids).await;
    let later = world.faulty.since(from);
    assert!(
        later.iter().any(|call| matches!(call, Verb::Reap(_))),
        "the reaper ran"
    );
    let lines = log::matching(engine.worker(), "terminated");
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
async fn a_failed_engine_has_one_timeout_for_all_releases() {
    let world = World::new();
    let probe = Probe::default();
    let panics = Arc::new(AtomicBool::new(false));
    let handler = PanickingReadiness {
        inner: Box::new(probe.working(|_| Duration::from_secs(80))),
        panics: Arc::clone(&panics),
    };
    let engine = world.start(handler, World::config());
    for leases in 1..=5 {
        world.enqueue(1).await;
        probe.begun(leases).await;
    }
    let is_silent = |call: &Verb| matches!(call, Verb::Settle(_) | Verb::Reap(_));
    world
        .faulty
        .rule(move |call| is_silent(call).then_some(Fault::Hang));
    panics.store(true, Ordering::Relaxed);
    engine.wake();
    let reap = engine.settings().reaper_interval();
    let from = Instant::now();
    timeout(Duration::from_mins(1), engine.failed())
        .await
        .unwrap();
    let took = from.elapsed();
    assert!(took < Duration::from_secs(3) + reap, "{took:?}");
    let settles = world.faulty.count(|call| matches!(call, Verb::Settle(_)));
    assert!(settles >= 5, "each lease is tried: {settles}");
}

/// Items of a killed worker run again within a term, a reaper interval and a second.
#[tokio::test(start_paused = true)]
async fn another_worker_soon_does_the_items_of_a_killed_worker() {
    let world = World::new();
    let ids = world.enqueue(5).await;
    let lost = Probe::default();
    let killed = world.start(lost.working(|_| Duration::from_secs(80)), World::config());
    lost.begun(5).await;
    let probe = Probe::default();
    let other = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
    sleep(Duration::from_secs(20)).await;
    assert!(probe.calls().is_empty(), "they are held");
    drop(killed);
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
