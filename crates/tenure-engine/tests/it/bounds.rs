//! Bounds of concurrency, of claims ahead and of idle polls; and backpressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::store::Renew;
use tenure_core::store::{LeaseStore as _, Operate as _};
use tenure_core::webhook::Reply;
use tenure_core::{Event, Guarded, Item, Setting, Term};
use tenure_engine::metrics::{CLAIMING_PAUSED, HELD, RUNNING};
use tenure_engine::{Context, Duties, Duty, EngineConfig, Handler, Handling, Readiness};
use tokio::time::{Instant, sleep};

use crate::faulty_store::Verb;
use crate::log;
use crate::meter::meter;
use crate::probe::{Probe, until};
use crate::receiver::Receiver;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// Proves: S1-049, S1-050, S1-055
#[tokio::test(start_paused = true)]
async fn slow_items_are_claimed_only_for_free_executors() {
    let world = World::new();
    world.enqueue(500).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(20)), World::config());
    let mut most = 0;
    for _ in 0..200 {
        sleep(Duration::from_secs(1)).await;
        most = most.max(engine.health().held);
        let claimed = world.faulty.claims().iter().map(|claim| claim.limit).max();
        assert!(claimed <= Some(10));
    }
    assert_eq!(probe.take_peak(), 10);
    // A finished item stays held until its settle, which it shares with others.
    assert!(most <= 20, "{most}");
    assert_eq!(
        probe.calls().iter().filter(|call| call.attempt > 1).count(),
        0
    );
    let gauge = meter().level(engine.worker(), RUNNING);
    assert!((gauge - 10.0).abs() < 0.1, "{gauge}");
    assert!(meter().level(engine.worker(), HELD) >= 10.0);
}

/// Proves: S1-055
#[tokio::test(start_paused = true)]
async fn quick_items_are_claimed_ahead_but_never_more_than_two_batches() {
    let world = World::new();
    world.enqueue(5000).await;
    let probe = Probe::default();
    let config = World::config_with(&[(Setting::Batch, "30"), (Setting::Concurrency, "4")]);
    let engine = world.start(probe.working(|_| Duration::from_millis(5)), config);
    let mut most = 0;
    while engine.health().held > 0 || probe.calls().len() < 5000 {
        let (health, running) = (engine.health(), probe.running());
        let ahead = usize::try_from(health.held)
            .unwrap()
            .saturating_sub(running);
        most = most.max(ahead);
        sleep(Duration::from_millis(1)).await;
    }
    assert!(world.faulty.claims().iter().all(|claim| claim.limit <= 30));
    assert!(most > 4, "items are claimed ahead");
    // The limit covers two waiting batches, and finished items before their settle.
    assert!(most <= 2 * 30 + 30, "{most}");
    assert!(probe.take_peak() <= 4);
}

#[tokio::test(start_paused = true)]
async fn waiting_items_are_renewed_like_running_ones() {
    let world = World::new();
    let ids = world.enqueue(200).await;
    let probe = Probe::default();
    // The handler is quick at first and slow later.
    let length = |event: &Event| match event.payload().parse::<u32>().unwrap() {
        0..50 => Duration::from_millis(10),
        _ => Duration::from_secs(50),
    };
    let config = World::config_with(&[(Setting::Concurrency, "2"), (Setting::Batch, "20")]);
    let engine = world.start(probe.working(length), config);
    probe.begun(52).await;
    let held = engine.health().held;
    assert!(held > 10);
    sleep(Duration::from_secs(45)).await;
    // After the term, all items are still held or done.
    assert!(probe.calls().iter().all(|call| call.attempt == 1));
    assert_eq!(
        world
            .store
            .reap(&tenure_core::store::Reap::new(
                100,
                tenure_core::LapsePolicy::default(),
            ))
            .await
            .unwrap(),
        []
    );
    let mut renewed_items = 0;
    for token in world.faulty.tokens() {
        let call = Renew::new(vec![token], Term::new(Duration::from_millis(1)).unwrap());
        for (_, answer) in world.store.renew(&call).await.unwrap() {
            if let Guarded::Accepted(renewed) = answer {
                renewed_items += renewed.ids.len();
            }
        }
    }
    assert_eq!(
        renewed_items,
        usize::try_from(engine.health().held).unwrap()
    );
    assert!(renewed_items > 2);
    drop(ids);
}

/// A process that relays and sends, like `serve`, stays within the limit of a process that only
/// relays.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_and_sender_make_few_calls() {
    let world = World::new();
    let probe = Probe::default();
    world.endpoint("billing", |_| ()).await;
    let _worker = world.start(probe.working(|_| Duration::ZERO), World::config());
    let receiver = Receiver::new(|_| (Duration::ZERO, Reply::status(200)));
    let left = EngineConfig {
        duties: Duties {
            reaper: Duty::Left,
            pruner: Duty::Left,
            replayer: Duty::Left,
        },
        ..World::config()
    };
    let _sender = world.send(&receiver, left);
    sleep(Duration::from_secs(10)).await;
    let from = Instant::now();
    sleep(MINUTE).await;
    let calls = world.faulty.since(from).len();
    assert!(calls <= 300, "{calls} statements in a minute");
}

/// Proves: S1-055
#[tokio::test(start_paused = true)]
async fn an_idle_worker_makes_few_calls_and_claims_at_once_when_woken() {
    let world = World::new();
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
    sleep(Duration::from_secs(10)).await;
    let from = Instant::now();
    sleep(MINUTE).await;
    let calls = world.faulty.since(from).len();
    assert!(calls <= 300, "{calls} statements in a minute");

    for _ in 0..20 {
        let begun = probe.calls().len();
        let from = Instant::now();
        world.enqueue(1).await;
        engine.wake();
        probe.begun(begun + 1).await;
        let call = probe.calls().pop().unwrap();
        assert!(
            call.began - from <= Duration::from_millis(2),
            "{:?}",
            call.began - from
        );
        sleep(Duration::from_secs(7)).await;
    }
    // Without a wake-up, the claim comes within the longest poll delay.
    let from = Instant::now();
    world.enqueue(1).await;
    probe.begun(21).await;
    assert!(from.elapsed() <= Duration::from_millis(1300));
}

struct Saturated {
    inner: Box<dyn Handler>,
    is_away: Arc<AtomicBool>,
}

impl Handler for Saturated {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        self.inner.handle(item, cx)
    }

    fn readiness(&self) -> Readiness {
        if self.is_away.load(Ordering::Relaxed) {
            return Readiness::Away {
                reason: "no room".to_owned(),
            };
        }
        Readiness::Ready
    }
}

/// Proves: S1-053, S1-054
#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_while_the_handler_is_not_ready() {
    let world = World::new();
    let probe = Probe::default();
    let is_away = Arc::new(AtomicBool::new(true));
    let handler = Saturated {
        inner: Box::new(probe.working(|_| Duration::from_secs(1))),
        is_away: Arc::clone(&is_away),
    };
    world.enqueue(50).await;
    let engine = world.start(handler, World::config());
    let level = || meter().level(engine.worker(), CLAIMING_PAUSED);
    for _ in 0..3 {
        sleep(Duration::from_secs(5)).await;
        let from = Instant::now();
        engine.wake();
        sleep(MINUTE).await;
        let calls = world.faulty.since(from);
        assert!(calls.iter().all(|call| call.claim().is_none()), "no claim");
        assert!(
            calls.iter().any(|call| matches!(call, Verb::Reap(_))),
            "the reaper goes on"
        );
        assert!((level() - 1.0).abs() < 0.1);

        is_away.store(false, Ordering::Relaxed);
        let (from, begun) = (Instant::now(), probe.calls().len());
        probe.begun(begun + 10).await;
        assert!(from.elapsed() <= Duration::from_millis(100), "no wake-up");
        assert!(level().abs() < 0.1);
        // Held items finish, and no other items start.
        is_away.store(true, Ordering::Relaxed);
        until(|| probe.running() == 0).await;
    }
    assert_eq!(log::matching(engine.worker(), "paused claiming").len(), 4);
    assert_eq!(log::matching(engine.worker(), "resumed claiming").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn items_claimed_ahead_go_to_other_workers_when_handlers_slow_down() {
    let world = World::new();
    world.enqueue(1000).await;
    let probe = Probe::default();
    let slow_from = 500;
    let handler = probe.working(move |event| {
        let number: u32 = event.payload().parse().unwrap();
        let is_slow = number >= slow_from;
        Duration::from_millis(if is_slow { 80_000 } else { 5 })
    });
    let engine = world.start(handler, World::config());
    probe.begun(510).await;
    assert!(engine.health().held > 50, "many are claimed ahead");
    // This is longer than two terms, and shorter than a slow item takes.
    sleep(Duration::from_secs(65)).await;
    assert_eq!(engine.health().held, 10, "only the running items");
    let claims = world.faulty.claims().len();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(engine.health().held, 10);
    let since = world.faulty.claims().len() - claims;
    assert_eq!(since, 0, "the worker claims none again");
    assert_eq!(world.store.count(None).await.unwrap().dead, 0);
}
