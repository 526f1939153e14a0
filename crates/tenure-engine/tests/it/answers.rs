//! Answers that get lost: nothing is done twice, nothing stays stuck.

use std::time::Duration;

use tenure_core::{Setting, State};
use tenure_engine::metrics::SETTLED;
use tokio::time::{Instant, sleep};

use crate::faulty::{Ask, Fault};
use crate::meter::meter;
use crate::probe::{Probe, until};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_given_back_long_before_its_term() {
    let world = World::new();
    let ids = world.enqueue(5).await;
    world
        .faulty
        .once(|ask| matches!(ask, Ask::Claim(_)), Fault::After);
    // Nor does it matter when giving it back fails at first.
    let is_release = |ask: &Ask| ask.settle().is_some_and(|settle| settle.items.is_empty());
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
async fn a_settle_whose_answer_was_lost_is_said_again_and_counts_once() {
    for fault in [Fault::After, Fault::Before] {
        let world = World::new();
        let id = world.enqueue(1).await[0];
        for _ in 0..3 {
            world.faulty.once(move |ask| ask.is_settle_of(id), fault);
        }
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
        let done = || meter().count(engine.worker(), SETTLED, &[("outcome", "done")]);
        until(|| done() == 1).await;
        assert_eq!(world.faulty.count(|ask| ask.is_settle_of(id)), 4);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(probe.of(id).len(), 1, "worked once");
        assert_eq!(done(), 1);
        assert_eq!(world.find(id).await.state, State::Done);
        assert_eq!(engine.stop().await.left, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_and_claim_whose_answer_was_lost_is_both_said_again_and_given_back() {
    for fault in [Fault::After, Fault::Before] {
        let world = World::new();
        let ids = world.enqueue(40).await;
        world
            .faulty
            .once(|ask| matches!(ask, Ask::SettleAndClaim(..)), fault);
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
        let is_both = |ask: &Ask| matches!(ask, Ask::SettleAndClaim(..));
        assert!(world.faulty.count(is_both) >= 1, "it was tried");
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

/// Not even by renewals that go on working.
#[tokio::test(start_paused = true)]
async fn a_settle_that_never_succeeds_does_not_hold_its_item_for_ever() {
    for fault in [Fault::Before, Fault::Hang, Fault::Bad] {
        let world = World::new();
        let id = world.enqueue(1).await[0];
        world
            .faulty
            .rule(move |ask| ask.is_settle_of(id).then_some(fault));
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
        until(|| probe.of(id).len() == 2).await;
        assert_eq!(world.find(id).await.counters.crashes, 1, "{fault:?}");
        drop(engine);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_is_waited_for() {
    let world = World::new();
    world.faulty.rule(|_| Some(Fault::Before));
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_millis(1)), World::config());
    sleep(Duration::from_mins(10)).await;
    assert!(!engine.health().is_ready());
    world.enqueue(20).await;
    world.faulty.mend();
    let from = Instant::now();
    world.until(|counts| counts.done == 20).await;
    assert!(
        from.elapsed() < Duration::from_secs(8),
        "{:?}",
        from.elapsed()
    );
    until(|| engine.health().is_ready()).await;
}
