//! Replayer: continues replays that other processes started, keeps their rate, and polls rarely
//! when there are none.

use std::time::Duration;

use tenure_core::store::{Bury, Filter, NewReplay, Operate as _, ReplayRate, Replays as _};
use tenure_core::testing::token;
use tenure_core::{ItemId, State};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::probe::Probe;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// Enqueues and buries `count` events.
async fn buried(world: &World, count: u32) -> Vec<ItemId> {
    let ids = world.enqueue(count).await;
    for (id, n) in ids.iter().zip(1..) {
        let bury = Bury::new(*id, token("operator", n), "a test");
        assert!(world.store.bury(&bury).await.unwrap().is_accepted());
    }
    ids
}

async fn start(world: &World, rate: Option<ReplayRate>) -> u64 {
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let mut new = NewReplay::new(dead).unwrap();
    new.rate = rate;
    world.store.start_replay(&new).await.unwrap().id
}

/// Waits until the replay is done.
async fn replay_done(world: &World, id: u64) {
    loop {
        let operation = world.store.replay_operation(id).await.unwrap();
        if !operation.unwrap().is_running() {
            return;
        }
        // Lets paused time advance.
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_another_process_started_is_continued() {
    let world = World::new();
    buried(&world, 1200).await;
    let id = start(&world, None).await;
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    world.until(|counts| counts.done == 1200).await;
    replay_done(&world, id).await;
    engine.stop().await;
}

/// Goal: two processes together keep the rate. Method: 300 events at ten per second, in paused
/// time.
#[tokio::test(start_paused = true)]
async fn two_engines_together_keep_the_rate_of_a_replay() {
    let world = World::new();
    buried(&world, 300).await;
    let id = start(&world, ReplayRate::per_minute(600)).await;
    let began = Instant::now();
    let engines = [(); 2].map(|()| {
        world.start(
            Probe::default().working(|_| Duration::ZERO),
            World::config(),
        )
    });
    world.until(|counts| counts.done == 300).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(29_900), "{took:?}");
    assert!(took <= Duration::from_secs(45), "{took:?}");
    replay_done(&world, id).await;
    for engine in engines {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_replay_the_replayer_polls_every_five_seconds() {
    let world = World::new();
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    sleep(MINUTE).await;
    let polls = world.faulty.count(|call| matches!(call, Verb::StepReplay));
    assert!((11..=12).contains(&polls), "{polls}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_is_retried() {
    let world = World::new();
    buried(&world, 3).await;
    let id = start(&world, None).await;
    world
        .faulty
        .once(|call| matches!(call, Verb::StepReplay), Fault::Before);
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    world.until(|counts| counts.done == 3).await;
    replay_done(&world, id).await;
    assert!(world.faulty.count(|call| matches!(call, Verb::StepReplay)) > 1);
    engine.stop().await;
}
