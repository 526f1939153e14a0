//! Lost answers of the store: an item that can be settled in time runs once, and none stays stuck.

use std::time::Duration;

use tenure_core::{Setting, State};
use tenure_engine::metrics::SETTLED;
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::meter::meter;
use crate::probe::{Probe, until};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_claim_without_an_answer_is_released_long_before_its_term() {
    let world = World::new();
    let ids = world.enqueue(5).await;
    world
        .faulty
        .once(|call| matches!(call, Verb::Claim(_)), Fault::After);
    // A release that fails at first is retried.
    let is_release = |call: &Verb| call.settle().is_some_and(|settle| settle.items.is_empty());
    world.faulty.once(is_release, Fault::Before);
    let probe = Probe::default();
    let from = Instant::now();
    let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
    world.until(|counts| counts.done == 5).await;
    assert!(
        from.elapsed() < Duration::from_secs(1),
        "{:?}",
        from.elapsed()
    );
    for id in ids {
        assert_eq!(probe.of(id).len(), 1);
        let counters = world.find(id).await.counters;
        assert_eq!((counters.crashes, counters.failures), (0, 0));
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_without_an_answer_is_retried_and_counts_once() {
    for fault in [Fault::After, Fault::Before] {
        let world = World::new();
        let id = world.enqueue(1).await[0];
        for _ in 0..3 {
            world.faulty.once(move |call| call.is_settle_of(id), fault);
        }
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
        let done = || meter().count(engine.worker(), SETTLED, &[("outcome", "done")]);
        until(|| done() == 1).await;
        assert_eq!(world.faulty.count(|call| call.is_settle_of(id)), 4);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(probe.of(id).len(), 1, "worked once");
        assert_eq!(done(), 1);
        assert_eq!(world.find(id).await.state, State::Done);
        assert_eq!(engine.stop().await.left, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_settle_and_claim_without_an_answer_the_settle_is_retried_and_the_claim_released() {
    for fault in [Fault::After, Fault::Before] {
        let world = World::new();
        let ids = world.enqueue(40).await;
        world
            .faulty
            .once(|call| matches!(call, Verb::SettleAndClaim(..)), fault);
        let probe = Probe::default();
        let from = Instant::now();
        let config = World::config_with(&[(Setting::Concurrency, "5")]);
        let engine = world.start(probe.working(|_| Duration::from_millis(10)), config);
        world.until(|counts| counts.done == 40).await;
        assert!(
            from.elapsed() < Duration::from_secs(5),
            "{:?}",
            from.elapsed()
        );
        let is_both = |call: &Verb| matches!(call, Verb::SettleAndClaim(..));
        assert!(world.faulty.count(is_both) >= 1, "the fault was met");
        for id in ids {
            assert_eq!(probe.of(id).len(), 1);
            assert_eq!(world.find(id).await.counters.crashes, 0);
        }
        assert_eq!(
            meter().count(engine.worker(), SETTLED, &[("outcome", "done")]),
            40
        );
        engine.stop().await;
    }
}

/// This also holds while renewals still succeed.
#[tokio::test(start_paused = true)]
async fn a_settle_that_never_succeeds_does_not_hold_its_item_for_ever() {
    for fault in [Fault::Before, Fault::Hang, Fault::Bad] {
        let world = World::new();
        let id = world.enqueue(1).await[0];
        world
            .faulty
            .rule(move |call| call.is_settle_of(id).then_some(fault));
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
        until(|| probe.of(id).len() == 2).await;
        assert_eq!(world.find(id).await.counters.crashes, 1, "{fault:?}");
        drop(engine);
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_recovers_after_an_outage_of_the_store() {
    let world = World::new();
    world.faulty.rule(|_| Some(Fault::Before));
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_millis(1)), World::config());
    sleep(Duration::from_mins(10)).await;
    assert!(!engine.health().is_ready());
    world.enqueue(20).await;
    world.faulty.heal();
    let from = Instant::now();
    world.until(|counts| counts.done == 20).await;
    assert!(
        from.elapsed() < Duration::from_secs(8),
        "{:?}",
        from.elapsed()
    );
    until(|| engine.health().is_ready()).await;
}
