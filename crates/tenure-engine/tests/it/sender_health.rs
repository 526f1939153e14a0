//! Endpoint health: an endpoint is paused when it fails or requests a pause, and disabled when it
//! is gone or fails for days; before that, operators are warned. Waiting deliveries use up no
//! attempt.

use std::time::Duration;

use tenure_core::State;
use tenure_core::store::{Filter, Operate as _, Webhooks as _};
use tenure_core::webhook::{
    CallErrorKind, Directive, Disabled, EndpointHealth, EndpointState, OnGone, Reply, Schedule,
};
use tenure_core::{Counters, ItemId, Setting, TopicPattern};
use tenure_engine::metrics::ENDPOINT_PAUSED;
use tokio::time::{Instant, sleep};

use crate::faulty_store::Verb;
use crate::log;
use crate::meter::meter;
use crate::receiver::Receiver;
use crate::world::World;

const SOON: Duration = Duration::from_millis(10);

fn failing(status: u16) -> std::sync::Arc<Receiver> {
    Receiver::new(move |_| (SOON, Reply::status(status)))
}

/// Payloads of Tenure's own events of this topic.
async fn own_events(world: &World, topic: &str) -> Vec<String> {
    let filter = Filter {
        topic: Some(topic.to_owned()),
        ..Filter::default()
    };
    let page = world.store.list(&filter, 100).await.unwrap();
    let events = page
        .records
        .iter()
        .filter_map(|record| record.content.event());
    events.map(|event| event.payload().to_owned()).collect()
}

/// An endpoint that subscribes to Tenure's own events and is never called here.
async fn watcher(world: &World) {
    let topics = vec![TopicPattern::new("tenure.*").unwrap()];
    world
        .endpoint("watcher", |settings| settings.topics = topics)
        .await;
}

async fn state_of(world: &World, id: &str) -> EndpointState {
    world.endpoint_now(id).await.state
}

async fn uncalled(world: &World, ids: &[ItemId]) -> usize {
    let mut count = 0;
    for id in ids {
        let record = world.find(*id).await;
        let is_untouched = record.counters == Counters::default();
        count += usize::from(record.state == State::Pending && is_untouched);
    }
    count
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_ten_times_is_paused_then_called_once() {
    let world = World::new();
    watcher(&world).await;
    world
        .endpoint("down", |settings| settings.concurrency = 1)
        .await;
    let ids = world.fan_out(40).await;
    let receiver = failing(500);
    let engine = world.send(&receiver, World::config());
    receiver.begun(10).await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(receiver.calls().len(), 10, "paused");
    assert_eq!(uncalled(&world, &ids).await, 30, "they lose no attempt");
    let labels = [("endpoint", "down")];
    assert!(meter().level_of(engine.worker(), ENDPOINT_PAUSED, &labels) > 0.5);
    // The health is stored at failures 1, 2, 4, 8 and 10.
    let chunk: Vec<u32> = world
        .faulty
        .calls()
        .iter()
        .filter_map(|(_, call)| match call {
            Verb::KeepHealth(health) => Some(health.failures),
            _ => None,
        })
        .collect();
    assert_eq!(chunk, [1, 2, 4, 8, 10], "not every failure is stored");
    let error = world.endpoint_now("down").await.health.last_error;
    assert_eq!(
        error.as_deref(),
        Some("it answered 500"),
        "the stored health"
    );
    let paused = own_events(&world, "tenure.endpoint.paused").await;
    assert_eq!(
        paused,
        [r#"{"endpoint":"down","for":"1m","why":"ten calls in a row failed"}"#]
    );

    // The probe call fails: the pause doubles.
    receiver.begun(11).await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(
        receiver.calls().len(),
        11,
        "one probe call, then a longer pause"
    );
    receiver.set_script(|_| (SOON, Reply::status(200)));
    world.delivered(40).await;
    let recovered = own_events(&world, "tenure.endpoint.recovered").await;
    assert_eq!(recovered, [r#"{"endpoint":"down"}"#]);
    assert_eq!(
        world.endpoint_now("down").await.health,
        EndpointHealth::default()
    );
    let gaps = receiver.calls();
    let gap = gaps[11].began - gaps[10].began;
    assert!(
        gap >= Duration::from_mins(2) && gap < Duration::from_secs(123),
        "{gap:?}"
    );
    engine.stop().await;
}

/// Health is shared between processes.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_one_process_pauses_is_paused_by_all() {
    let world = World::new();
    world
        .endpoint("down", |settings| settings.concurrency = 1)
        .await;
    world.fan_out(40).await;
    let receiver = failing(500);
    let engines = [0, 1].map(|_| world.send(&receiver, World::config()));
    receiver.begun(10).await;
    sleep(Duration::from_secs(50)).await;
    let calls = receiver.calls().len();
    assert!(
        calls <= 21,
        "{calls} calls of two processes that share the health"
    );
    for engine in engines {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_requests_a_pause_is_paused() {
    let world = World::new();
    world
        .endpoint("busy", |settings| settings.concurrency = 1)
        .await;
    let ids = world.fan_out(5).await;
    let requested = Duration::from_mins(7);
    let receiver = Receiver::new(move |_| {
        let mut reply = Reply::status(429);
        reply.retry_after = Some(requested);
        (SOON, reply)
    });
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    receiver.set_script(|_| (SOON, Reply::status(200)));
    world.delivered(4).await;
    let calls = receiver.calls();
    let gap = calls[1].began - calls[0].began;
    assert!(
        gap >= requested && gap < requested + Duration::from_secs(3),
        "{gap:?}"
    );
    world.delivered(5).await;
    let (first, others) = ids.split_first().unwrap();
    assert_eq!(world.find(*first).await.counters.failures, 1);
    for id in others {
        assert_eq!(
            world.find(*id).await.counters.attempts,
            0,
            "no attempt is used up"
        );
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_gone_is_disabled_and_its_deliveries_die_uncalled() {
    let world = World::new();
    watcher(&world).await;
    world
        .endpoint("gone", |settings| settings.concurrency = 1)
        .await;
    let ids = world.fan_out(8).await;
    let receiver = failing(410);
    let engine = world.send(&receiver, World::config());
    world.until(|counts| counts.deliveries.dead == 8).await;
    assert_eq!(receiver.calls().len(), 1);
    for id in ids {
        let record = world.find(id).await;
        assert_eq!(record.dead_reason.as_deref(), Some("gone"));
    }
    let state = state_of(&world, "gone").await;
    assert!(matches!(
        state,
        EndpointState::Disabled {
            why: Disabled::Gone,
            ..
        }
    ));
    let payloads = own_events(&world, "tenure.endpoint.disabled").await;
    assert_eq!(payloads, [r#"{"endpoint":"gone","why":"gone"}"#]);
    assert_eq!(
        log::matching(engine.worker(), "disabled an endpoint").len(),
        1
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_on_gone_keep_the_deliveries_of_an_endpoint_that_is_gone_wait() {
    let world = World::new();
    let keep = |settings: &mut tenure_core::webhook::EndpointSettings| {
        settings.on_gone = OnGone::Keep;
        settings.concurrency = 1;
    };
    world.endpoint("moved", keep).await;
    let ids = world.fan_out(8).await;
    let receiver = failing(410);
    let engine = world.send(&receiver, World::config());
    receiver.begun(1).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(receiver.calls().len(), 1);
    assert_eq!(uncalled(&world, &ids).await, 7);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_can_abort_its_delivery_or_disable_its_endpoint() {
    let world = World::new();
    watcher(&world).await;
    world
        .endpoint("done", |settings| settings.concurrency = 1)
        .await;
    let ids = world.fan_out(2).await;
    let receiver = Receiver::new(|_| {
        let mut reply = Reply::status(400);
        reply.directive = Some(Directive::AbortMessage);
        (SOON, reply)
    });
    let engine = world.send(&receiver, World::config());
    world.until(|counts| counts.deliveries.dead == 2).await;
    let reason = world.find(ids[0]).await.dead_reason;
    assert_eq!(reason.as_deref(), Some("aborted_by_receiver"));
    let dead = own_events(&world, "tenure.delivery.dead").await;
    assert_eq!(dead.len(), 2);
    assert!(
        dead.iter()
            .all(|payload| payload.contains(r#""topic":"order.paid""#)),
        "{dead:?}"
    );

    receiver.set_script(|_| {
        let mut reply = Reply::status(200);
        reply.directive = Some(Directive::Disable);
        (SOON, reply)
    });
    world.fan_out(1).await;
    world.delivered(1).await;
    let state = state_of(&world, "done").await;
    assert!(matches!(
        state,
        EndpointState::Disabled {
            why: Disabled::Requested,
            ..
        }
    ));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_for_days_is_warned_about_and_then_disabled() {
    let day = Duration::from_hours(24);
    for (days, is_disabled) in [(2_u32, false), (6, true)] {
        let world = World::new();
        watcher(&world).await;
        let endpoint = world.endpoint("ill", |_| ()).await;
        let now = world.at(Instant::now());
        let health = EndpointHealth {
            failures: 20,
            failing_since: Some(now.before(day * days)),
            failed: Some(1),
            is_spread: true,
            warnings: if is_disabled { 2 } else { 0 },
            ..EndpointHealth::default()
        };
        world
            .store
            .keep_health(&endpoint.id, &health)
            .await
            .unwrap();
        world.fan_out(1).await;
        let receiver = Receiver::new(|_| {
            let error = Reply::error(CallErrorKind::Connect, "connection refused");
            (SOON, error)
        });
        let engine = world.send(&receiver, World::config());
        receiver.begun(1).await;
        sleep(Duration::from_secs(3)).await;
        let state = state_of(&world, "ill").await;
        let is_given_up = matches!(
            state,
            EndpointState::Disabled {
                why: Disabled::Failing,
                ..
            }
        );
        assert_eq!(is_given_up, is_disabled);
        let warnings = own_events(&world, "tenure.endpoint.warning").await;
        assert_eq!(warnings.len(), usize::from(!is_disabled), "{warnings:?}");
        let lines = log::matching(engine.worker(), "keeps failing and will be disabled");
        assert_eq!(lines.len(), usize::from(!is_disabled));
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_schedule_of_the_endpoint_limits_the_attempts_of_a_delivery() {
    let world = World::new();
    watcher(&world).await;
    let schedule = Schedule::new([2, 3, 4].map(Duration::from_secs).to_vec()).unwrap();
    world
        .endpoint("strict", |settings| settings.schedule = schedule)
        .await;
    let id = world.fan_out(1).await[0];
    let receiver = failing(503);
    let config = World::config_with(&[(Setting::MaxRetries, "1")]);
    let engine = world.send(&receiver, config);
    world.until(|counts| counts.deliveries.dead == 1).await;
    let calls = receiver.calls();
    assert_eq!(
        calls.iter().map(|call| call.attempt).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    let record = world.find(id).await;
    assert_eq!(record.dead_reason.as_deref(), Some("failed"));
    let dead = own_events(&world, "tenure.delivery.dead").await;
    assert_eq!(dead.len(), 1);
    assert!(
        dead[0].contains(&format!(r#""delivery":"{id}""#)),
        "{dead:?}"
    );
    assert!(!dead[0].contains("canary"), "{dead:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_this_process_does_not_count_against_the_endpoint() {
    let world = World::new();
    world.endpoint("fine", |_| ()).await;
    world.fan_out(15).await;
    let receiver = Receiver::new(|_| {
        let error = Reply::error(CallErrorKind::Unsendable, "its secret does not open");
        (SOON, error)
    });
    let engine = world.send(&receiver, World::config());
    receiver.begun(15).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.endpoint_now("fine").await.health,
        EndpointHealth::default()
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_this_process_cannot_send_wait_for_another_and_use_up_no_attempt() {
    let world = World::new();
    world.endpoint("sealed", |_| ()).await;
    world.endpoint("plain", |_| ()).await;
    let deliveries = world.fan_out(3).await;
    let receiver = Receiver::accepting(SOON);
    receiver.refuse(Some("sealed"));
    let engine = world.send(&receiver, World::config());
    world.delivered(3).await;
    sleep(Duration::from_mins(5)).await;
    assert!(receiver.of("sealed").is_empty());
    let warned = |line: &log::LogLine| line.text.starts_with("cannot call an endpoint");
    let lines = log::lines(engine.worker());
    assert_eq!(lines.iter().filter(|line| warned(line)).count(), 1);

    receiver.refuse(None);
    world.delivered(6).await;
    for id in deliveries {
        assert_eq!(world.attempts(id).await.len(), 1);
        assert_eq!(world.find(id).await.counters, Counters::default());
    }
    engine.stop().await;
}
