//! The path of an event: claimed, handled, settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::{Failure, Outcome, State};
use tenure_engine::EventFn;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn every_event_is_handled_once_and_done() {
    let world = World::new();
    let ids = world.enqueue(1000).await;
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let engine = world.start(
        EventFn::new(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok(Outcome::Done) }
        }),
        World::config(),
    );
    world.until(|counts| counts.done == 1000).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1000);
    assert_eq!(world.find(ids[0]).await.state, State::Done);
    assert_eq!(engine.stop().await.left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_and_a_panic_is_a_failure() {
    let world = World::new();
    let ids = world.enqueue(2).await;
    let engine = world.start(
        EventFn::new(|event, cx| async move {
            assert!(
                event.payload() != "1" || cx.attempt() > 1,
                "a planted panic"
            );
            if cx.attempt() < 3 {
                return Err(Failure::new("not yet"));
            }
            // In paused time, the work takes a second of the world's clock.
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Outcome::Done)
        }),
        World::config(),
    );
    world.until(|counts| counts.done == 2).await;
    assert_eq!(world.find(ids[1]).await.counters.failures, 2);
    assert!(engine.health().is_ready(), "{:?}", engine.health());
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_heartbeat_renews_the_leases_of_long_work() {
    let world = World::new();
    world.enqueue(3).await;
    let engine = world.start(
        EventFn::new(|_, _| async move {
            // In paused time, the work takes longer than two terms of 30 s.
            tokio::time::sleep(Duration::from_secs(80)).await;
            Ok(Outcome::Done)
        }),
        World::config(),
    );
    world.until(|counts| counts.done == 3).await;
    engine.stop().await;
}
