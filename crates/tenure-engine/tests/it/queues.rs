//! Queues, priorities, isolated items and poison items.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::store::{Isolation, Pause, QueueRules, Queues as _};
use tenure_core::{
    Event, Failure, ItemId, LapsePolicy, NewEvent, Outcome, QueueName, Setting, State, Term,
};
use tenure_engine::{Context, EngineConfig, EventFn};
use tokio::time::sleep;

use crate::probe::{Probe, until};
use crate::world::World;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

async fn enqueue_in(world: &World, name: &str, count: u32) -> Vec<ItemId> {
    let event = |n: u32| NewEvent::new("order.paid", &n).queue(name).build().unwrap();
    world
        .enqueue_all(&(0..count).map(event).collect::<Vec<_>>())
        .await
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_added_later_is_served_with_its_own_term() {
    let world = World::new();
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(100)), World::config());
    sleep(Duration::from_secs(5)).await;
    let rules = QueueRules {
        term: Some(Term::EXTERNAL),
        ..QueueRules::default()
    };
    world.store.add_queue(&queue("slow"), rules).await.unwrap();
    let id = enqueue_in(&world, "slow", 1).await[0];
    until(|| !probe.of(id).is_empty()).await;
    let hold = world.find(id).await.hold.unwrap();
    assert_eq!(hold.until.since(hold.claimed_at), Term::EXTERNAL.length());
    // The work takes 100 s: longer than the maximum hold of a standard term (three terms, 90 s),
    // but not than that of the queue's term (270 s).
    world.until(|counts| counts.done == 1).await;
    assert_eq!(probe.of(id).len(), 1);
    engine.stop().await;
}

async fn pause(world: &World, pause: Pause) {
    let answer = world.store.pause_queue(&queue("mail"), pause).await;
    assert!(answer.unwrap().is_accepted());
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_is_skipped_until_it_resumes() {
    let world = World::new();
    world
        .store
        .add_queue(&queue("mail"), QueueRules::default())
        .await
        .unwrap();
    pause(&world, Pause::Begin).await;
    let paused = enqueue_in(&world, "mail", 3).await;
    world.enqueue(3).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
    world.until(|counts| counts.done == 3).await;
    sleep(Duration::from_mins(1)).await;
    assert!(paused.iter().all(|id| probe.of(*id).is_empty()));
    pause(&world, Pause::End).await;
    world.until(|counts| counts.done == 6).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_configured_queues_are_served_even_if_they_are_added_later() {
    let world = World::new();
    let config = EngineConfig {
        queues: vec![queue("mail")],
        ..World::config()
    };
    world.enqueue(3).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::ZERO), config);
    sleep(Duration::from_mins(1)).await;
    assert!(probe.calls().is_empty());
    world
        .store
        .add_queue(&queue("mail"), QueueRules::default())
        .await
        .unwrap();
    let ids = enqueue_in(&world, "mail", 2).await;
    world.until(|counts| counts.done == 2).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(probe.calls().len(), 2);
    assert_eq!(world.find(ids[0]).await.state, State::Done);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn urgent_items_run_first() {
    let world = World::new();
    let event = |n: u8| {
        NewEvent::new("order.paid", &n)
            .priority(n % 8)
            .build()
            .unwrap()
    };
    world
        .enqueue_all(&(0..40).map(event).collect::<Vec<_>>())
        .await;
    let probe = Probe::default();
    let config = World::config_with(&[(Setting::Concurrency, "1")]);
    let engine = world.start(probe.working(|_| Duration::from_secs(1)), config);
    world.until(|counts| counts.done == 40).await;
    let order: Vec<u8> = probe
        .calls()
        .iter()
        .map(|call| call.payload.parse::<u8>().unwrap() % 8)
        .collect();
    assert!(
        order.is_sorted_by(|first, second| first >= second),
        "{order:?}"
    );
    engine.stop().await;
}

/// Starts an engine and drops it once it works on `count` items, so that their leases lapse.
async fn vanish(world: &World, count: usize) {
    let probe = Probe::default();
    let config = World::config_with(&[(Setting::Concurrency, "10")]);
    let engine = world.start(probe.working(|_| Duration::from_secs(80)), config);
    until(|| probe.running() == count).await;
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn items_that_lapsed_twice_are_claimed_alone_and_one_at_a_time() {
    let world = World::new();
    let suspects = world.enqueue(4).await;
    vanish(&world, 4).await;
    vanish(&world, 4).await;
    let probe = Probe::default();
    let before = world.faulty.claims().len();
    let engine = world.start(probe.working(|_| Duration::from_secs(5)), World::config());
    until(|| !probe.calls().is_empty()).await;
    assert_eq!(
        world.find(suspects[0]).await.counters.crashes,
        LapsePolicy::ALONE_AFTER
    );
    // Other items run in the meantime.
    let others = world.enqueue(50).await;
    world.until(|counts| counts.done == 54).await;
    let calls = probe.calls();
    let alone: Vec<_> = calls
        .iter()
        .filter(|call| suspects.contains(&call.id))
        .collect();
    assert_eq!(alone.len(), 4);
    for pair in alone.windows(2) {
        assert!(pair[0].ended.unwrap() <= pair[1].began, "one at a time");
        assert_ne!(pair[0].fence, pair[1].fence);
    }
    let fences: Vec<_> = alone.iter().map(|call| call.fence).collect();
    let shared = calls.iter().filter(|call| others.contains(&call.id));
    assert!(
        shared.into_iter().all(|call| !fences.contains(&call.fence)),
        "no other item shares a claim with them"
    );
    let claims = world.faulty.claims().split_off(before);
    let lone = claims
        .iter()
        .filter(|claim| claim.isolation == Isolation::Isolated);
    assert!(lone.into_iter().all(|claim| claim.limit == 1));
    engine.stop().await;
}

/// The engine counts outcomes of its handlers, but not those of its reaper, because other workers
/// held those items.
#[tokio::test(start_paused = true)]
async fn a_stopped_engine_reports_the_outcomes_of_its_items() {
    let world = World::new();
    world.enqueue(1).await;
    for _ in 0..=LapsePolicy::default().max_crashes() {
        vanish(&world, 1).await;
    }
    enqueue_in(&world, "default", 4).await;
    let handler = EventFn::new(|event: Event, _: Context| async move {
        let hour = Duration::from_hours(1);
        match event.payload() {
            "0" => Ok(Outcome::Done),
            "1" => Err(Failure::new("no such address").never()),
            "2" => Ok(Outcome::snooze(hour)),
            _ => Err(Failure::new("busy").after(hour)),
        }
    });
    let engine = world.start(handler, World::config());
    world
        .until(|counts| counts.done == 1 && counts.dead == 2 && counts.claimed == 0)
        .await;
    let outcomes = engine.stop().await.outcomes;
    assert_eq!((outcomes.done, outcomes.retried), (1, 1));
    assert_eq!((outcomes.dead, outcomes.released), (1, 1));
}

/// One payload kills every engine that works on it; only that item becomes dead.
#[tokio::test(start_paused = true)]
async fn a_poison_item_becomes_dead_and_harms_no_other() {
    let world = World::new();
    let ids = world.enqueue(30).await;
    let crash = Arc::new(tokio::sync::Notify::new());
    let touched = Arc::new(Mutex::new(0_u32));
    for _ in 0..100 {
        if world.find(ids[7]).await.state == State::Dead {
            break;
        }
        let (signal, count) = (Arc::clone(&crash), Arc::clone(&touched));
        let handler = EventFn::new(move |event: Event, _: Context| {
            let (signal, count) = (Arc::clone(&signal), Arc::clone(&count));
            async move {
                if event.payload() == "7" {
                    *count.lock().unwrap() += 1;
                    signal.notify_one();
                    std::future::pending::<()>().await;
                }
                sleep(Duration::from_secs(2)).await;
                Ok(Outcome::Done)
            }
        });
        let engine = world.start(handler, World::config());
        tokio::select! {
            () = crash.notified() => drop(engine),
            () = sleep(Duration::from_mins(2)) => drop(engine),
        }
    }
    let record = world.find(ids[7]).await;
    assert_eq!(record.state, State::Dead);
    assert!(record.dead_reason.unwrap().contains("crash_loop"));
    let most = LapsePolicy::default().max_crashes();
    assert_eq!(record.counters.crashes, most + 1);
    assert_eq!(*touched.lock().unwrap(), most + 1);
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::ZERO), World::config());
    world
        .until(|counts| counts.done == 29 && counts.dead == 1)
        .await;
    engine.stop().await;
}
