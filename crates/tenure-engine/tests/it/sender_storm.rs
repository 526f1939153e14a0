//! Chaos: workers that relay and send are killed and restarted over a store whose calls fail, are
//! late or are never answered, with a receiver that fails at random; a seed decides everything. In
//! the end each event has been delivered to each endpoint, by exactly one delivery, and every
//! received call is on record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::store::{Filter, Kind, Operate as _};
use tenure_core::webhook::AttemptOutcome::{Open, Unknown};
use tenure_core::webhook::{CallErrorKind, Reply, Schedule};
use tenure_core::{Event, ItemId, NewEvent, Setting, State};
use tenure_engine::{Engine, EngineConfig};
use tokio::time::sleep;

use crate::faulty_store::{Fault, Verb};
use crate::receiver::{ReceivedCall, Receiver};
use crate::world::{World, fan_out};

const SEEDS: u64 = 6;
const EVENTS: u32 = 30;
const ENDPOINTS: [&str; 3] = ["calm", "moody", "slow"];

fn config() -> EngineConfig {
    World::config_with(&[
        (Setting::Term, "6s"),
        (Setting::Concurrency, "8"),
        (Setting::MaxCrashes, "1000"),
    ])
}

/// Starts a process with a relay and a sender.
fn start(world: &World, receiver: &Arc<Receiver>) -> [Engine; 2] {
    let settings = config();
    let sender = world.send_for(settings.settings.term, receiver, settings);
    let relay = world.start(
        fan_out(),
        EngineConfig {
            sender: Some(sender.waker()),
            ..config()
        },
    );
    [relay, sender]
}

/// Injects a fault into one of `of` calls, on average.
fn random_faults(seed: u64, of: u32) -> impl FnMut(&Verb) -> Option<Fault> + Send + 'static {
    let mut rng = StdRng::seed_from_u64(seed);
    move |call| {
        if matches!(call, Verb::Other) || !rng.random_ratio(1, of) {
            return None;
        }
        let late = Duration::from_millis(rng.random_range(1..4000));
        Some(match rng.random_range(0..5) {
            0 => Fault::Before,
            1 => Fault::After,
            2 => Fault::Slow(late),
            3 => Fault::Late(late),
            _ => Fault::Hang,
        })
    }
}

fn random_receiver(seed: u64) -> Arc<Receiver> {
    let rng = Mutex::new(StdRng::seed_from_u64(seed));
    Receiver::new(move |request| {
        let mut rng = rng.lock().unwrap();
        let length = Duration::from_millis(rng.random_range(1..2000));
        match request.endpoint.id.as_str() {
            "slow" => (length * 10, Reply::status(200)),
            "moody" if rng.random_bool(0.4) => {
                let broken = Reply::error(CallErrorKind::Broken, "it broke off");
                let replies = [Reply::status(500), Reply::status(503), broken];
                (length, replies[rng.random_range(0..3)].clone())
            }
            _ => (length, Reply::status(204)),
        }
    })
}

/// Kills or stops processes and starts new ones for a while, then removes all faults.
async fn chaos(world: &World, receiver: &Arc<Receiver>, seed: u64) -> Vec<[Engine; 2]> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut running: Vec<[Engine; 2]> = (0..3).map(|_| start(world, receiver)).collect();
    for _ in 0..20 {
        sleep(Duration::from_millis(rng.random_range(100..8000))).await;
        let nth = rng.random_range(0..running.len());
        let [relay, sender] = running.remove(nth);
        if rng.random_bool(0.3) {
            tokio::join!(relay.stop(), sender.stop());
        } else {
            drop((relay, sender));
        }
        running.push(start(world, receiver));
    }
    world.faulty.heal();
    running
}

/// Asserts that no two calls of a delivery overlap: a worker that lost the delivery has closed its
/// connection before another worker calls.
fn assert_one_at_a_time(calls: &[ReceivedCall]) {
    let mut by_delivery: BTreeMap<ItemId, Vec<&ReceivedCall>> = BTreeMap::new();
    for call in calls {
        by_delivery.entry(call.delivery).or_default().push(call);
    }
    for (delivery, calls) in by_delivery {
        for pair in calls.windows(2) {
            assert!(pair[0].fence < pair[1].fence, "{delivery}: the fence rises");
            assert!(pair[0].attempt < pair[1].attempt, "{delivery}");
            let is_over = pair[0].ended.is_some_and(|ended| ended <= pair[1].began);
            assert!(is_over, "{delivery}: {pair:?}");
        }
    }
}

/// Asserts the order of each key at each endpoint, except repeats.
fn assert_in_order(calls: &[ReceivedCall]) {
    let mut last: BTreeMap<(&str, u32), u32> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.sequence.is_some()) {
        let n: u32 = call.payload.parse().unwrap();
        let before = last.insert((&call.endpoint, n % 3), n);
        assert!(
            before.is_none_or(|before| before <= n),
            "{call:?} after {before:?}"
        );
    }
}

async fn survive(seed: u64) {
    let world = World::new();
    for id in ENDPOINTS {
        let schedule = Schedule::new(vec![Duration::from_secs(1); 30]).unwrap();
        let rules = |settings: &mut tenure_core::webhook::EndpointSettings| {
            settings.schedule = schedule;
            settings.timeout = Duration::from_mins(1);
        };
        world.endpoint(id, rules).await;
    }
    let events: Vec<Event> = (0..EVENTS)
        .map(|n| {
            let event = Event::new("order.paid", &n).unwrap();
            match n % 3 {
                0 => event,
                key => NewEvent::from(event)
                    .key(&format!("key-{key}"))
                    .build()
                    .unwrap(),
            }
        })
        .collect();
    let sources = world.enqueue_all(&events).await;
    let receiver = random_receiver(seed);
    world.faulty.rule(random_faults(seed, 12));
    let running = chaos(&world, &receiver, seed).await;
    let all = u64::from(EVENTS) * 3;
    world
        .until(|counts| counts.deliveries.delivered + counts.deliveries.dead == all)
        .await;
    for [relay, sender] in running {
        relay.stop().await;
        sender.stop().await;
    }

    let filter = Filter {
        kind: Kind::Deliveries,
        ..Filter::default()
    };
    let page = world.store.list(&filter, 1000).await.unwrap();
    let mut deliveries = BTreeSet::new();
    let calls = receiver.calls();
    for record in page.records {
        let delivery = record.content.delivery().unwrap().clone();
        assert!(
            deliveries.insert((delivery.source, delivery.endpoint)),
            "one delivery for each event and endpoint"
        );
        let own = calls.iter().filter(|call| call.delivery == record.id);
        let attempts = world.attempts(record.id).await;
        for call in own {
            // Every call is recorded, with or without an outcome.
            let attempt = attempts.iter().find(|attempt| attempt.fence == call.fence);
            assert!(attempt.is_some(), "seed {seed}: {call:?} is not on record");
        }
        for attempt in &attempts {
            assert_ne!(attempt.outcome, Open, "everything is settled");
            if attempt.outcome != Unknown {
                let is_received = calls.iter().any(|call| call.fence == attempt.fence);
                assert!(is_received, "seed {seed}: {attempt:?} was never received");
            }
        }
        assert_eq!(record.state, State::Done, "seed {seed}: {record:?}");
    }
    assert_eq!(deliveries.len(), sources.len() * ENDPOINTS.len());
    assert_one_at_a_time(&calls);
    assert_in_order(&calls);
}

/// Proves: S2-024, S2-041, S2-044, S2-061
#[tokio::test(start_paused = true)]
async fn whatever_breaks_each_event_is_delivered_to_each_endpoint() {
    for seed in 0..SEEDS {
        survive(seed).await;
    }
}
