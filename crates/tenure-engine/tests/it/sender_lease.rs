//! Leases of deliveries: the sender renews them from before the call until after the settle. If a
//! lease is lost, the call is cancelled and recorded; if the worker dies, another worker repeats
//! it.

use std::time::Duration;

use tenure_core::store::{Bury, LeaseStore as _, Operate as _, Rest, Settle};
use tenure_core::webhook::AttemptOutcome::{self, Aborted, Delivered, Superseded, Unknown};
use tenure_core::webhook::Reply;
use tenure_core::{Event, ItemId, Setting, State, Term, Token};
use tenure_engine::metrics::{DELIVERY_ATTEMPTS, LOST};
use tenure_engine::{Duties, Duty, Engine, EngineConfig};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::meter;
use crate::probe::{End, until};
use crate::receiver::Receiver;
use crate::world::{World, fan_out};

const TERM: Duration = Term::EXTERNAL.length();
/// Length of a call that takes four terms.
const LONG: Duration = Duration::from_mins(6);
const MINUTE: Duration = Duration::from_mins(1);

/// A world with an endpoint whose timeout is ten minutes, and one delivery to it.
async fn slow_world() -> (World, ItemId) {
    let world = World::new();
    let slow = |settings: &mut tenure_core::webhook::EndpointSettings| {
        settings.timeout = Duration::from_mins(10);
    };
    world.endpoint("slow", slow).await;
    let delivery = world.fan_out(1).await[0];
    (world, delivery)
}

fn outcomes(attempts: &[tenure_core::webhook::Attempt]) -> Vec<AttemptOutcome> {
    attempts.iter().map(|attempt| attempt.outcome).collect()
}

fn counted(engine: &Engine, outcome: AttemptOutcome) -> u64 {
    let labels = [("outcome", outcome.as_str())];
    meter().count(engine.worker(), DELIVERY_ATTEMPTS, &labels)
}

#[tokio::test(start_paused = true)]
async fn events_that_a_relay_has_done_are_delivered() {
    let world = World::new();
    world.endpoint("a", |_| ()).await;
    world.endpoint("b", |_| ()).await;
    let receiver = Receiver::accepting(Duration::from_millis(20));
    let sender = world.send(&receiver, World::config());
    let relay = world.start(
        fan_out(),
        EngineConfig {
            sender: Some(sender.waker()),
            ..World::config()
        },
    );
    let events = [Event::new("order.paid", &"canary-payload").unwrap()];
    let source = world.enqueue_all(&events).await[0];
    relay.wake();
    let began = Instant::now();
    world.delivered(2).await;
    assert!(began.elapsed() < Duration::from_millis(200), "it was woken");
    assert_eq!(world.find(source).await.state, State::Done);
    let mut endpoints: Vec<String> = receiver
        .calls()
        .iter()
        .map(|s| s.endpoint.clone())
        .collect();
    endpoints.sort();
    assert_eq!(endpoints, ["a", "b"]);
    for delivery in world.deliveries().await {
        let attempts = world.attempts(delivery).await;
        assert_eq!(outcomes(&attempts), [Delivered]);
        let recorded = attempts[0].call.as_ref().unwrap();
        assert_eq!((recorded.status, recorded.attempt), (Some(204), 1));
        let calls = receiver.calls();
        let call = calls.iter().find(|call| call.delivery == delivery).unwrap();
        assert_eq!(call.payload, "\"canary-payload\"");
        assert_eq!(
            recorded.began_at,
            world.at(call.began),
            "the start of the call, not the settle"
        );
    }
    assert_eq!(counted(&sender, Delivered), 2);
    relay.stop().await;
    sender.stop().await;
}

/// Proves: S2-010, S2-011, S2-012, S2-013, S2-031, S2-032, S2-043, S2-061, S2-066
#[tokio::test(start_paused = true)]
async fn a_call_of_four_terms_is_made_once_and_renewed_until_its_settle() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(LONG);
    let engines = [0, 1].map(|_| world.send(&receiver, World::config()));
    receiver.begun(1).await;
    let call = receiver.calls()[0].clone();
    let hold = world
        .find(delivery)
        .await
        .hold
        .expect("held before the call leaves");
    assert_eq!(hold.fence, call.fence);
    assert!(hold.claimed_at <= world.at(call.began));
    let token = world.token_of(delivery).await;

    // The same claim holds the delivery throughout, and its end only moves forward.
    let mut until_before = hold.until;
    let settled_at = loop {
        let record = world.find(delivery).await;
        let Some(now) = record.hold else {
            assert_eq!(record.state, State::Done);
            break Instant::now();
        };
        assert_eq!(now.fence, hold.fence);
        assert!(now.until >= until_before, "the end never moves back");
        assert!(now.until > world.at(Instant::now()), "the lease is live");
        let counters = record.counters;
        assert_eq!(
            (counters.attempts, counters.failures, counters.crashes),
            (0, 0, 0)
        );
        until_before = now.until;
        sleep(Duration::from_secs(1)).await;
    };
    sleep(TERM * 2).await;
    assert_eq!(
        receiver.calls().len(),
        1,
        "one call for two workers and four terms"
    );
    assert_eq!(outcomes(&world.attempts(delivery).await), [Delivered]);
    let calls = world.faulty.calls();
    let beats: Vec<Instant> = calls
        .iter()
        .filter(|(_, call)| call.is_renew_of(&token))
        .map(|(at, _)| *at)
        .collect();
    assert!(
        beats.iter().all(|at| *at <= settled_at),
        "no renewal after the settle"
    );
    let mut last = call.began;
    for beat in &beats {
        let interval = *beat - last;
        assert!(interval > Duration::ZERO && interval <= TERM / 4 && interval < TERM);
        last = *beat;
    }
    assert!(
        beats.len() >= 15,
        "a quarter of the term apart: {}",
        beats.len()
    );
    for engine in engines {
        engine.stop().await;
    }
}

/// Proves: S2-040, S2-041, S2-044
#[tokio::test(start_paused = true)]
async fn after_a_worker_was_killed_its_delivery_is_called_once_more() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(LONG);
    let killed = world.send(&receiver, World::config());
    receiver.begun(1).await;
    sleep(MINUTE).await;
    drop(killed);
    let killed_at = Instant::now();
    receiver.set_script(|_| (Duration::from_secs(1), Reply::status(200)));
    let engine = world.send(&receiver, World::config());
    world.delivered(1).await;
    let calls = receiver.calls();
    assert_eq!(calls.len(), 2, "once more, and no more");
    let longest = TERM + engine.settings().reaper_interval() + Duration::from_secs(2);
    assert!(calls[1].began - killed_at <= longest);
    assert_eq!((calls[0].attempt, calls[1].attempt), (1, 2));
    assert!(calls[0].fence < calls[1].fence);
    let attempts = world.attempts(delivery).await;
    assert_eq!(outcomes(&attempts), [Unknown, Delivered]);
    assert_eq!(world.find(delivery).await.counters.failures, 0);
    engine.stop().await;
}

/// The idle poll delay is random, so the test runs with several seeds.
#[tokio::test(start_paused = true)]
async fn an_idle_sender_is_woken_by_the_reaper_of_its_process() {
    for seed in 0..4 {
        let (world, delivery) = slow_world().await;
        let receiver = Receiver::accepting(LONG);
        let killed = world.send(&receiver, World::config());
        receiver.begun(1).await;
        drop(killed);
        let config = EngineConfig {
            duties: Duties {
                reaper: Duty::Left,
                ..Duties::default()
            },
            seed: Some(seed),
            ..World::config()
        };
        let sender = world.send(&receiver, config);
        let config = EngineConfig {
            sender: Some(sender.waker()),
            ..World::config()
        };
        let relay = world.start(fan_out(), config);
        sleep(TERM.saturating_sub(Duration::from_secs(1))).await;
        while world.find(delivery).await.state == State::Claimed {
            // The store does not notify; this lets paused time advance.
            sleep(Duration::from_millis(1)).await;
        }
        let reaped_at = Instant::now();
        receiver.begun(2).await;
        let took = receiver.calls()[1].began - reaped_at;
        assert!(took <= Duration::from_millis(150), "{took:?} with {seed}");
        relay.stop().await;
    }
}

/// Proves: S2-020, S2-022, S2-024, S2-052
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_aborts_its_call_and_no_other() {
    let world = World::new();
    world
        .endpoint("slow", |settings| {
            settings.timeout = Duration::from_mins(10);
        })
        .await;
    let ids = world.fan_out(2).await;
    let receiver = Receiver::accepting(LONG);
    // Each delivery has its own claim, so that one can be lost alone.
    let engine = world.send(&receiver, World::config_with(&[(Setting::Batch, "1")]));
    receiver.begun(2).await;
    let lost = ids[0];
    let token = world.token_of(lost).await;
    let release = Settle::new(token).rest(Rest::Release);
    drop(world.store.settle(&release).await.unwrap());
    receiver.set_script(|_| (Duration::from_secs(1), Reply::status(200)));
    until(|| receiver.calls()[0].end.is_some()).await;
    let call = receiver
        .calls()
        .into_iter()
        .find(|calls| calls.delivery == lost)
        .unwrap();
    assert_eq!(call.end, Some(End::Dropped), "the connection is closed");
    world.delivered(2).await;
    assert_eq!(
        outcomes(&world.attempts(lost).await),
        [Superseded, Delivered]
    );
    assert_eq!(outcomes(&world.attempts(ids[1]).await), [Delivered]);
    assert_eq!(
        meter().count(engine.worker(), LOST, &[("reason", "refused")]),
        1
    );
    assert_eq!(counted(&engine, Superseded), 1);
    let lines = log::matching(engine.worker(), "lost a lease");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let source = world.find(lost).await.content.delivery().unwrap().source;
    assert_eq!(lines[0].field("reason"), "refused");
    assert_eq!(lines[0].field("running"), lost.to_string());
    assert_eq!(lines[0].field("events"), source.to_string());
    // The log shows that both deliveries were settled in the end.
    let ended = log::matching(engine.worker(), "stopped renewing a delivery");
    let reasons: Vec<&str> = ended.iter().map(|line| line.field("reason")).collect();
    assert_eq!(reasons, ["settled", "settled"]);
    engine.stop().await;
}

/// Proves: S2-050, S2-051, S2-052, S2-064
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_logged_with_event_worker_and_error() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(LONG);
    world
        .faulty
        .rule(|call| matches!(call, Verb::Renew(_)).then_some(Fault::Before));
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    let claimed_until = world.locked_until(delivery).await;
    until(|| receiver.calls()[0].end.is_some()).await;
    let call = receiver.calls()[0].clone();
    assert_eq!(call.end, Some(End::Dropped));
    assert!(
        world.at(call.ended.unwrap()) < claimed_until,
        "before another worker may call"
    );
    let line = log::matching(engine.worker(), "lost a lease").remove(0);
    assert_eq!(line.field("reason"), "failed");
    assert_eq!(line.field("running"), delivery.to_string());
    assert_eq!(line.field("worker"), engine.worker().as_str());
    assert!(line.field("error").contains("a planted outage"), "{line:?}");
    world.faulty.heal();
    receiver.set_script(|_| (Duration::from_secs(1), Reply::status(200)));
    world.delivered(1).await;
    assert_eq!(
        outcomes(&world.attempts(delivery).await),
        [Superseded, Delivered]
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_lease_is_gone_is_recorded_as_soon_as_the_store_answers() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(LONG);
    let is_of = move |call: &Verb| match call {
        Verb::RecordCalls(calls) => calls.iter().any(|call| call.delivery == delivery),
        _ => false,
    };
    world.faulty.once(is_of, Fault::Before);
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    let release = Settle::new(world.token_of(delivery).await).rest(Rest::Release);
    drop(world.store.settle(&release).await.unwrap());
    receiver.set_script(|_| (Duration::from_secs(1), Reply::status(200)));
    world.delivered(1).await;
    engine.stop().await;
    assert_eq!(world.faulty.count(is_of), 2);
    let attempts = world.attempts(delivery).await;
    assert_eq!(outcomes(&attempts), [Superseded, Delivered]);
    let began_at = attempts[0].call.as_ref().unwrap().began_at;
    assert_eq!(began_at, world.at(receiver.calls()[0].began));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_aborts_calls_that_do_not_end_in_time_and_counts_no_failure() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(LONG);
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    let stopped = engine.stop().await;
    assert_eq!(stopped.left, 0);
    assert_eq!(receiver.calls()[0].end, Some(End::Dropped));
    let record = world.find(delivery).await;
    assert_eq!(
        (record.state, record.counters.failures),
        (State::Pending, 0)
    );
    let attempts = world.attempts(delivery).await;
    assert_eq!(outcomes(&attempts), [Aborted]);
    assert_eq!(attempts[0].call.as_ref().unwrap().status, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_during_a_shutdown_is_settled() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(Duration::from_secs(10));
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    engine.stop().await;
    assert_eq!(world.find(delivery).await.state, State::Done);
}

/// A call that hangs is cancelled after the endpoint's timeout and a margin, even if that exceeds
/// `max_hold`; then the schedule continues.
#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_cancelled_at_the_timeout_of_its_endpoint() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(Duration::from_hours(10));
    let config = World::config_with(&[(Setting::MaxRetries, "0")]);
    let engine = world.send(&receiver, config);
    receiver.begun(1).await;
    sleep(Duration::from_mins(9)).await;
    until(|| receiver.calls()[0].end.is_some()).await;
    let call = receiver.calls()[0].clone();
    let length = call.ended.unwrap() - call.began;
    assert!(length >= Duration::from_mins(10) && length <= Duration::from_mins(11));
    receiver.set_script(|_| (Duration::from_secs(1), Reply::status(200)));
    world.delivered(1).await;
    assert_eq!(
        outcomes(&world.attempts(delivery).await),
        [Aborted, Delivered]
    );
    assert_eq!(
        world.find(delivery).await.counters.failures,
        1,
        "the schedule continues"
    );
    engine.stop().await;
}

/// Proves: S2-023
#[tokio::test(start_paused = true)]
async fn a_call_whose_settle_is_refused_is_recorded_as_superseded() {
    let (world, delivery) = slow_world().await;
    let receiver = Receiver::accepting(Duration::from_secs(5));
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    let operator = Token::new(engine.worker(), 99, 99);
    let bury = Bury::new(delivery, operator, "by hand");
    assert!(world.store.bury(&bury).await.unwrap().is_accepted());
    until(|| receiver.calls()[0].end.is_some()).await;
    engine.stop().await;
    let record = world.find(delivery).await;
    assert_eq!(record.state, State::Dead);
    let attempts = world.attempts(delivery).await;
    assert_eq!(outcomes(&attempts), [Superseded]);
    assert_eq!(
        attempts[0].call.as_ref().unwrap().status,
        Some(204),
        "its answer is recorded"
    );
}

#[tokio::test(start_paused = true)]
async fn a_settle_without_an_answer_is_retried_with_its_calls() {
    for fault in [Fault::Before, Fault::After] {
        let (world, delivery) = slow_world().await;
        let receiver = Receiver::accepting(Duration::from_secs(5));
        world
            .faulty
            .once(move |call| call.is_settle_of(delivery), fault);
        let engine = world.send(&receiver, World::config());
        world.delivered(1).await;
        engine.stop().await;
        let settles: Vec<Settle> = world
            .faulty
            .calls()
            .iter()
            .filter_map(|(_, call)| call.settle().cloned())
            .collect();
        assert_eq!(settles.len(), 2);
        assert!(
            settles[0].calls[0].ago < settles[1].calls[0].ago,
            "the call is older by then"
        );
        let attempts = world.attempts(delivery).await;
        assert_eq!(outcomes(&attempts), [Delivered]);
        let began_at = world.at(receiver.calls()[0].began);
        assert_eq!(attempts[0].call.as_ref().unwrap().began_at, began_at);
        assert_eq!(receiver.calls().len(), 1);
    }
}

/// Proves: S2-060
#[tokio::test(start_paused = true)]
async fn no_connection_of_the_store_is_in_use_during_a_call() {
    let (world, _) = slow_world().await;
    world.fan_out(9).await;
    let receiver = Receiver::accepting(LONG);
    let engine = world.send(&receiver, World::config());
    receiver.begun(10).await;
    let began = Instant::now();
    for _ in 0..100 {
        sleep(Duration::from_millis(3_333)).await;
        assert_eq!(world.faulty.open(), 0);
    }
    let renewals = world.faulty.since(began);
    let renewals = renewals
        .iter()
        .filter(|call| matches!(call, Verb::Renew(_)));
    assert!(
        renewals.count() <= 20,
        "one statement for all of them, four times a term"
    );
    world.delivered(10).await;
    engine.stop().await;
}

/// Proves: S2-053, S2-062
#[tokio::test(start_paused = true)]
async fn nothing_of_payload_secret_or_address_is_logged() {
    let world = World::new();
    world.endpoint("loud", |_| ()).await;
    let events = [Event::new("order.paid", &"canary-payload").unwrap()];
    world.fan_out_all(&events).await;
    let receiver = Receiver::new(|request| {
        let mut reply = Reply::status(if request.attempt == 1 { 500 } else { 200 });
        reply.body = b"canary-body".to_vec();
        (Duration::from_secs(1), reply)
    });
    let engine = world.send(&receiver, World::config());
    world.delivered(1).await;
    let worker = engine.worker().clone();
    engine.stop().await;
    let lines = log::lines(&worker);
    assert!(
        lines
            .iter()
            .any(|line| line.text == "a call failed" && line.field("status") == "500")
    );
    for line in lines {
        let all = format!("{line:?}");
        assert!(!all.contains("canary"), "{all}");
    }
}
