//! Shutdown: claims stop, unstarted items are released, running ones finish in time or are
//! cancelled and released, and no task keeps running.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure_core::store::{Cluster as _, Presence};
use tenure_core::{Event, Outcome, Setting, State};
use tenure_engine::metrics::TERMINATED;
use tenure_engine::{Context, EngineConfig, EventFn, Keeper};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe, until};
use crate::world::World;

/// Proves: S1-037, S1-038
#[tokio::test(start_paused = true)]
async fn a_stop_ends_claims_releases_unstarted_items_and_finishes_running_ones() {
    let world = World::new();
    let ids = world.enqueue(200).await;
    let probe = Probe::default();
    // The first items are quick, so that the engine claims ahead; then two are slow.
    let length = |event: &Event| match event.payload().parse::<u32>().unwrap() {
        0..50 => Duration::from_millis(10),
        _ => Duration::from_secs(20),
    };
    let config = World::config_with(&[(Setting::Concurrency, "2"), (Setting::Batch, "20")]);
    let engine = world.start(probe.working(length), config);
    probe.begun(52).await;
    let running: Vec<_> = ids
        .iter()
        .copied()
        .filter(|id| probe.of(*id).iter().any(|call| call.end.is_none()))
        .collect();
    assert_eq!(running.len(), 2);
    assert!(engine.health().held > 2, "some were claimed ahead");

    let stopped_at = Instant::now();
    let stop = tokio::spawn(engine.stop());
    // The unstarted items are released at once, not when the running items have finished.
    world.until(|counts| counts.claimed == 2).await;
    assert!(stopped_at.elapsed() < Duration::from_secs(1));
    assert_eq!(stop.await.unwrap().left, 0);
    let took = stopped_at.elapsed();
    assert!(
        took < Duration::from_secs(21),
        "as soon as they were done: {took:?}"
    );

    let later = world.faulty.since(stopped_at + Duration::from_millis(1));
    assert!(later.iter().all(|call| call.claim().is_none()), "no claim");
    let beats = later
        .iter()
        .filter(|call| matches!(call, Verb::Renew(_)))
        .count();
    assert!(beats >= 2, "heartbeats went on");
    for id in ids {
        let record = world.find(id).await;
        let counters = record.counters;
        let is_worked = probe
            .of(id)
            .iter()
            .any(|call| call.end == Some(End::Answered));
        assert_eq!(record.state == State::Done, is_worked);
        assert_eq!((counters.failures, counters.crashes), (0, 0));
    }
}

/// Proves: S1-038, S1-039, S1-040
#[tokio::test(start_paused = true)]
async fn items_that_do_not_finish_in_time_are_cancelled_and_released() {
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(80)), World::config());
    let worker = engine.worker().clone();
    probe.begun(3).await;
    let stopped_at = Instant::now();
    assert_eq!(engine.stop().await.left, 0);
    let took = stopped_at.elapsed();
    assert!(
        took >= Duration::from_secs(25) && took < Duration::from_secs(26),
        "{took:?}"
    );
    world.assert_released(&probe, &ids).await;
    // The worker deregistered and makes no more calls.
    let (now, workers) = world.store.workers(10).await.unwrap();
    assert_eq!(workers[0].presence(now), Presence::Left);
    assert_eq!(
        meter().count(&worker, TERMINATED, &[("cause", "shutdown")]),
        1
    );
    let lines = log::lines(&worker);
    assert_eq!(
        lines.iter().filter(|line| line.text == "stopped").count(),
        1
    );
    let over = Instant::now() + Duration::from_millis(1);
    sleep(Duration::from_mins(2)).await;
    assert!(world.faulty.since(over).is_empty());
    assert_eq!(
        Arc::strong_count(&world.faulty),
        1,
        "nothing holds on to the store"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_stops_at_once() {
    let world = World::new();
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    sleep(Duration::from_secs(5)).await;
    let from = Instant::now();
    assert_eq!(engine.stop().await.left, 0);
    assert!(
        from.elapsed() < Duration::from_millis(50),
        "{:?}",
        from.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_way_at_a_stop_is_released_before_the_stop_ends() {
    for fault in [Fault::Slow(Duration::from_secs(3)), Fault::After] {
        let world = World::new();
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
        sleep(Duration::from_secs(1)).await;
        world.faulty.once(|call| call.claim().is_some(), fault);
        // The release takes a while, too.
        let is_release = |call: &Verb| call.settle().is_some_and(|settle| settle.items.is_empty());
        world
            .faulty
            .once(is_release, Fault::Late(Duration::from_secs(2)));
        let ids = world.enqueue(5).await;
        engine.wake();
        world.until(|counts| counts.claimed == 5).await;
        assert_eq!(engine.stop().await.left, 0);
        assert!(probe.calls().is_empty());
        for id in ids {
            let record = world.find(id).await;
            assert_eq!(record.state, State::Pending, "{fault:?}");
            assert_eq!(record.counters.crashes, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_even_if_the_store_never_answers_again() {
    let world = World::new();
    world.enqueue(3).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
    probe.begun(3).await;
    world.faulty.rule(|_| Some(Fault::Hang));
    let from = Instant::now();
    engine.stop().await;
    let took = from.elapsed();
    assert!(took < Duration::from_secs(36), "{took:?}");
}

/// Proves: S1-042
#[test]
fn the_lease_of_a_handler_that_cannot_be_stopped_lapses() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new();
        let id = world.enqueue(1).await[0];
        let (go_on, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let handler = EventFn::new(move |_, _: Context| {
            let blocked = Arc::clone(&blocked);
            async move {
                // The wait ends when the sender is dropped.
                let _ended = blocked.lock().unwrap().recv();
                Ok(Outcome::Done)
            }
        });
        let config = || EngineConfig {
            keeper: Keeper::OwnThread,
            ..World::config_with(&[
                (Setting::Term, "600ms"),
                (Setting::ShutdownTimeout, "100ms"),
                (Setting::MaxHold, "1m"),
            ])
        };
        let engine = world.start(handler, config());
        world.until(|counts| counts.claimed == 1).await;
        while engine.health().running == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(engine.stop().await.left, 1);
        assert_eq!(world.faulty.count(|call| call.is_settle_of(id)), 0);

        // Another worker takes the item over.
        let probe = Probe::default();
        let other = world.start(probe.working(|_| Duration::ZERO), config());
        until(|| !probe.of(id).is_empty()).await;
        world.until(|counts| counts.done == 1).await;
        let counters = world.find(id).await.counters;
        assert_eq!((counters.crashes, counters.failures), (1, 0));
        drop(go_on);
        other.stop().await;
    });
}

/// The registry reports from a task of its own, so the first report may be in progress at the stop.
#[tokio::test(start_paused = true)]
async fn a_worker_is_not_registered_after_its_stop() {
    let world = World::new();
    world.faulty.rule(|call| match call {
        Verb::Report(_) => Some(Fault::Late(Duration::from_millis(500))),
        Verb::Leave => Some(Fault::Slow(Duration::from_secs(1))),
        _ => None,
    });
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    until(|| world.faulty.count(|call| matches!(call, Verb::Report(_))) > 0).await;
    engine.stop().await;
    sleep(Duration::from_mins(1)).await;
    let (now, workers) = world.store.workers(10).await.unwrap();
    let mut present = workers.iter().map(|worker| worker.presence(now));
    assert!(present.all(|it| it == Presence::Left), "{workers:?}");
}
