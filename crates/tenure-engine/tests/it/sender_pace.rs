//! Pace of calls: within the concurrency and rate of the endpoint, in order per key, and
//! independent of other endpoints.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::State;
use tenure_core::store::{ChangeEndpoint, ProvidesWebhooks as _};
use tenure_core::webhook::{Disabled, EndpointState, RateLimit, Reply, Schedule};
use tenure_core::{Event, ItemId, NewEvent, Setting, Timestamp};
use tenure_engine::metrics::{DELIVERIES_IN_FLIGHT, STORE_CALLS};
use tokio::time::{Instant, sleep};

use crate::faulty_store::Verb;
use crate::meter::meter;
use crate::probe::until;
use crate::receiver::{ReceivedCall, Receiver};
use crate::world::World;

/// Maximum number of concurrent calls.
fn peak(calls: &[ReceivedCall]) -> usize {
    let at_once = |call: &ReceivedCall| {
        let others = calls.iter();
        let others = others.filter(|other| {
            other.began <= call.began && other.ended.is_none_or(|ended| ended > call.began)
        });
        others.count()
    };
    calls.iter().map(at_once).max().unwrap_or(0)
}

impl World {
    /// Asserts that no attempt, failure or crash of these items was counted.
    async fn assert_uncharged(&self, ids: &[ItemId]) {
        for id in ids {
            let counters = self.find(*id).await.counters;
            let charged = (counters.attempts, counters.failures, counters.crashes);
            assert_eq!(charged, (0, 0, 0), "{id}");
        }
    }
}

/// Proves: S2-014
#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_delays_no_other() {
    let world = World::new();
    world.endpoint("slow", |_| ()).await;
    world.endpoint("fast", |_| ()).await;
    let ids = world.fan_out(100).await;
    assert_eq!(ids.len(), 200);
    let receiver = Receiver::new(|request| match request.endpoint.id.as_str() {
        "slow" => (Duration::from_secs(10), Reply::status(200)),
        _ => (Duration::from_millis(10), Reply::status(200)),
    });
    let config = World::config_with(&[(Setting::Concurrency, "30")]);
    let engine = world.send(&receiver, config);
    let began = Instant::now();
    world.delivered(100).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(receiver.of("fast").len(), 100);
    assert_eq!(peak(&receiver.of("slow")), 10, "its concurrency");
    assert!(meter().level(engine.worker(), DELIVERIES_IN_FLIGHT) >= 10.0);
    world.delivered(200).await;
    assert!(
        began.elapsed() < Duration::from_secs(102),
        "its capacity was used throughout"
    );
    world.assert_uncharged(&ids).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_endpoint_stay_within_its_concurrency() {
    let world = World::new();
    world
        .endpoint("narrow", |settings| settings.concurrency = 2)
        .await;
    let ids = world.fan_out(20).await;
    let receiver = Receiver::accepting(Duration::from_secs(1));
    let engine = world.send(&receiver, World::config());
    let began = Instant::now();
    world.delivered(20).await;
    assert_eq!(peak(&receiver.calls()), 2);
    assert!(began.elapsed() < Duration::from_secs(12), "no time is lost");
    world.assert_uncharged(&ids).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_endpoint_stay_within_its_rate() {
    let world = World::new();
    let rate = RateLimit {
        per_second: 5,
        burst: 2,
    };
    world
        .endpoint("limited", |settings| settings.rate = Some(rate))
        .await;
    let ids = world.fan_out(22).await;
    let receiver = Receiver::accepting(Duration::from_millis(1));
    let engine = world.send(&receiver, World::config());
    world.delivered(22).await;
    let calls = receiver.calls();
    for nth in 0..calls.len() {
        let within = calls.iter().skip(nth);
        let second = calls[nth].began + Duration::from_secs(1);
        let within = within.filter(|other| other.began < second).count();
        assert!(within <= 7, "{within} in a second");
    }
    let took = calls[21].began - calls[0].began;
    assert!(took >= Duration::from_secs(4), "{took:?}");
    assert!(took <= Duration::from_secs(6), "{took:?}");
    world.assert_uncharged(&ids).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_order_of_a_key_is_kept_per_endpoint_and_other_keys_go_on() {
    let world = World::new();
    let schedule = Schedule::new(vec![Duration::from_secs(30)]).unwrap();
    for id in ["steady", "flaky"] {
        let schedule = schedule.clone();
        world
            .endpoint(id, |settings| settings.schedule = schedule)
            .await;
    }
    let keyed = |n: u32| {
        let key = if n.is_multiple_of(2) { "even" } else { "odd" };
        NewEvent::new("order.paid", &n).key(key).build().unwrap()
    };
    let events: Vec<Event> = (0..12).map(keyed).collect();
    world.fan_out_all(&events).await;
    // The head of one key fails once, at one endpoint.
    let receiver = Receiver::new(|request| {
        let is_flaky = request.endpoint.id.as_str() == "flaky";
        let is_first = request.event.payload() == "0" && request.attempt == 1;
        let status = if is_flaky && is_first { 500 } else { 200 };
        (Duration::from_millis(50), Reply::status(status))
    });
    let engine = world.send(&receiver, World::config());
    let began = Instant::now();
    world.delivered(18).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "only its own key waits"
    );
    world.delivered(24).await;
    let mut by_key: BTreeMap<(String, bool), Vec<u32>> = BTreeMap::new();
    let mut sequences: BTreeMap<(String, bool), i64> = BTreeMap::new();
    for calls in receiver.calls() {
        let n: u32 = calls.payload.parse().unwrap();
        let key = (calls.endpoint.clone(), n.is_multiple_of(2));
        let sequence = calls.sequence.expect("it has a key");
        let last = sequences.insert(key.clone(), sequence);
        assert!(last.is_none_or(|last| last <= sequence));
        by_key.entry(key).or_default().push(n);
    }
    for ((endpoint, is_even), numbers) in by_key {
        let mut expected: Vec<u32> = (0..12_u32)
            .filter(|n| n.is_multiple_of(2) == is_even)
            .collect();
        if endpoint == "flaky" && is_even {
            expected.insert(0, 0);
        }
        assert_eq!(numbers, expected, "{endpoint}");
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_endpoint_applies_at_the_next_read() {
    let world = World::new();
    let endpoint = world.endpoint("shy", |_| ()).await;
    let receiver = Receiver::accepting(Duration::from_millis(10));
    let engine = world.send(&receiver, World::config());
    world.fan_out(1).await;
    world.delivered(1).await;
    // The sender is idle.
    sleep(Duration::from_secs(10)).await;
    let mut change = ChangeEndpoint {
        id: endpoint.id.clone(),
        version: endpoint.version,
        settings: endpoint.settings.clone(),
        sealed: endpoint.sealed.clone(),
        state: EndpointState::Disabled {
            why: Disabled::ByHand("a test".to_owned()),
            since: Timestamp::from_micros(0),
        },
        now: None,
    };
    // These deliveries are created before the endpoint is disabled: they wait.
    let waiting = world.fan_out(3).await;
    let webhooks = world.store.webhooks();
    assert!(
        webhooks
            .change_endpoint(&change)
            .await
            .unwrap()
            .is_accepted()
    );
    sleep(Duration::from_mins(1)).await;
    assert_eq!(receiver.calls().len(), 1);
    world.assert_uncharged(&waiting).await;
    change.version += 1;
    change.state = EndpointState::Enabled;
    assert!(
        webhooks
            .change_endpoint(&change)
            .await
            .unwrap()
            .is_accepted()
    );
    world.delivered(4).await;
    world.assert_uncharged(&waiting).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_a_removed_endpoint_die_without_a_call() {
    let world = World::new();
    let endpoint = world.endpoint("old", |_| ()).await;
    let ids = world.fan_out(30).await;
    let change = ChangeEndpoint {
        id: endpoint.id.clone(),
        version: endpoint.version,
        settings: endpoint.settings.clone(),
        sealed: String::new(),
        state: EndpointState::Removed {
            since: Timestamp::from_micros(0),
        },
        now: None,
    };
    let webhooks = world.store.webhooks();
    assert!(
        webhooks
            .change_endpoint(&change)
            .await
            .unwrap()
            .is_accepted()
    );
    let receiver = Receiver::accepting(Duration::from_millis(10));
    let engine = world.send(&receiver, World::config());
    world.until(|counts| counts.deliveries.dead == 30).await;
    assert!(receiver.calls().is_empty());
    for id in ids {
        let record = world.find(id).await;
        assert_eq!(record.state, State::Dead);
        assert_eq!(record.dead_reason.as_deref(), Some("removed"));
        assert!(world.attempts(id).await.is_empty());
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_kills_its_workers_becomes_dead() {
    let world = World::new();
    world.endpoint("cursed", |_| ()).await;
    let id = world.fan_out(1).await[0];
    let receiver = Receiver::accepting(Duration::from_hours(1));
    let mut crashes = 0;
    loop {
        let engine = world.send(&receiver, World::config());
        let before = receiver.calls().len();
        until_called_or_dead(&world, &receiver, before, id).await;
        drop(engine);
        if world.find(id).await.state == State::Dead {
            break;
        }
        crashes += 1;
        assert!(crashes < 10, "it never becomes dead");
    }
    let record = world.find(id).await;
    assert_eq!(record.dead_reason.as_deref(), Some("crash_loop"));
    assert_eq!(
        u32::try_from(receiver.calls().len()).unwrap(),
        record.counters.crashes
    );
}

async fn until_called_or_dead(world: &World, receiver: &Receiver, before: usize, id: ItemId) {
    for _ in 0..100_000 {
        if receiver.calls().len() > before || world.find(id).await.state == State::Dead {
            return;
        }
        // Neither source sends a notification; this lets paused time advance.
        sleep(Duration::from_millis(50)).await;
    }
    until(|| false).await;
}

#[tokio::test(start_paused = true)]
async fn a_choice_of_lanes_is_counted_only_if_it_reads_the_store() {
    let world = World::new();
    world
        .endpoint("wide", |settings| settings.concurrency = 1000)
        .await;
    world.fan_out(600).await;
    let receiver = Receiver::accepting(Duration::from_millis(1));
    let config = World::config_with(&[(Setting::Concurrency, "20")]);
    let engine = world.send(&receiver, config);
    world.delivered(600).await;
    let worker = engine.worker().clone();
    engine.stop().await;
    let calls = world.faulty.count(|call| matches!(call, Verb::Due));
    let claims = world.faulty.claims().len();
    assert!(calls < claims, "{calls} reads served {claims} claims");
    let counted = meter().count(&worker, STORE_CALLS, &[("verb", "choose")]);
    assert_eq!(counted, u64::try_from(calls).unwrap());
}
