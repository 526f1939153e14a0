//! The replayer: it goes on with replays that others began, keeps their rate, and asks little when
//! there are none.

use std::time::Duration;

use tenure_core::store::{Bury, Filter, NewReplay, Operate as _, Rate, Replays as _};
use tenure_core::testing::token;
use tenure_core::{ItemId, State};
use tokio::time::{Instant, sleep};

use crate::faulty::{Ask, Fault};
use crate::probe::Probe;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// This many events that are dead.
async fn buried(world: &World, count: u32) -> Vec<ItemId> {
    let ids = world.enqueue(count).await;
    for (id, n) in ids.iter().zip(1..) {
        let bury = Bury::new(*id, token("operator", n), "a test");
        assert!(world.store.bury(&bury).await.unwrap().is_kept());
    }
    ids
}

async fn start(world: &World, rate: Option<Rate>) -> u64 {
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let mut new = NewReplay::new(dead).unwrap();
    new.rate = rate;
    world.store.start_replay(&new).await.unwrap().id
}

/// Waits until nothing is left of it to look at.
async fn ended(world: &World, id: u64) {
    loop {
        let operation = world.store.replay_operation(id).await.unwrap();
        if !operation.unwrap().is_running() {
            return;
        }
        // This only lets paused time go on.
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_somebody_began_is_gone_on_with_and_worked() {
    let world = World::new();
    buried(&world, 1200).await;
    let id = start(&world, None).await;
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    world.until(|counts| counts.done == 1200).await;
    ended(&world, id).await;
    engine.stop().await;
}

/// Goal: two processes together are no faster than the rate. Method: ten per second of 300, and
/// time that stands still but for the waiting.
#[tokio::test(start_paused = true)]
async fn two_engines_keep_to_one_rate() {
    let world = World::new();
    buried(&world, 300).await;
    let id = start(&world, Rate::per_minute(600)).await;
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
    ended(&world, id).await;
    for engine in engines {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_replay_it_looks_every_five_seconds() {
    let world = World::new();
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    sleep(MINUTE).await;
    let looked = world.faulty.count(|ask| matches!(ask, Ask::StepReplay));
    assert!((11..=12).contains(&looked), "{looked}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_is_taken_again() {
    let world = World::new();
    buried(&world, 3).await;
    let id = start(&world, None).await;
    world
        .faulty
        .once(|ask| matches!(ask, Ask::StepReplay), Fault::Before);
    let engine = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    world.until(|counts| counts.done == 3).await;
    ended(&world, id).await;
    assert!(world.faulty.count(|ask| matches!(ask, Ask::StepReplay)) > 1);
    engine.stop().await;
}
