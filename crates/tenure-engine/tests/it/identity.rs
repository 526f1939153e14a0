//! Identity: every log line and every metric names the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Cluster as _, QueueRules, Queues as _};
use tenure_core::{Event, Failure, NewEvent, Outcome, QueueName, Setting, TopicPattern, WorkerId};
use tenure_engine::metrics::{
    HANDLER_SECONDS, PICKUP_SECONDS, RECOVERED_COUNT, RUNS_TOTAL, SETTLED, STALE_DURATION,
    STORE_CALLS,
};
use tenure_engine::{Context, EventFn, Topics};
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::{is_of, meter};
use crate::probe::Probe;
use crate::world::World;

/// Runs a worker through many faults.
async fn run_with_faults(world: &World) -> WorkerId {
    let handler = EventFn::new(|event: Event, cx: Context| async move {
        match event.payload() {
            "0" => panic!("a planted panic"),
            "1" => Err(Failure::new("not this one")),
            "2" => Ok(Outcome::dead("never")),
            "3" => Ok(Outcome::snooze(Duration::from_secs(5))),
            "4" if cx.attempt() == 1 => {
                sleep(Duration::from_hours(1)).await;
                Ok(Outcome::Done)
            }
            _ => Ok(Outcome::Done),
        }
    });
    world.enqueue(40).await;
    let config = World::config_with(&[(Setting::MaxRetries, "1")]);
    let engine = world.start(handler, config);
    sleep(Duration::from_secs(3)).await;
    let mut nth = 0_u32;
    world.faulty.rule(move |_| {
        nth += 1;
        [Some(Fault::Before), Some(Fault::After), None, None]
            .get(usize::try_from(nth % 4).unwrap())
            .copied()
            .flatten()
    });
    world.enqueue(40).await;
    sleep(Duration::from_mins(1)).await;
    world
        .faulty
        .rule(|call| matches!(call, Verb::Renew(_)).then_some(Fault::Hang));
    sleep(Duration::from_mins(1)).await;
    world.faulty.heal();
    world.change(&[(Setting::Heartbeat, "20s")]).await;
    sleep(Duration::from_secs(30)).await;
    let worker = engine.worker().clone();
    world
        .faulty
        .rule(|call| matches!(call, Verb::Leave).then_some(Fault::Before));
    engine.stop().await;
    worker
}

/// Proves: S1-045, S1-046
#[tokio::test(start_paused = true)]
async fn every_log_line_and_every_metric_names_the_worker() {
    let world = World::new();
    let worker = run_with_faults(&world).await;
    let lines = log::lines(&worker);
    let texts: BTreeSet<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    for expected in [
        "started",
        "stopped",
        "could not deregister the worker",
        "done",
    ] {
        assert!(texts.contains(expected), "{expected}: {texts:?}");
    }
    assert!(texts.len() >= 12, "{texts:?}");
    let nameless = log::nameless();
    assert!(nameless.is_empty(), "{nameless:?}");

    let series = meter().series();
    let has_both = |labels: &BTreeMap<String, String>| {
        labels.contains_key("worker") && labels.contains_key("instance")
    };
    assert!(
        series.iter().all(|(_, labels)| has_both(labels)),
        "{series:?}"
    );
    let own = series.iter().filter(|series| is_of(series, &worker));
    let names: BTreeSet<&str> = own.map(|(name, _)| name.as_str()).collect();
    assert!(names.len() >= 17, "{names:?}");
    // The registry of workers has the worker's id, too.
    let (_, workers) = world.store.workers(10).await.unwrap();
    assert_eq!(workers[0].report.worker, worker);
    let is_own = |call: &Verb| matches!(call, Verb::Report(report) if report.worker == worker);
    assert!(world.faulty.count(is_own) > 1, "repeatedly");
}

/// The requirements fix three names; all other names start with `tenure_`.
#[tokio::test(start_paused = true)]
async fn every_metric_has_a_help_text_a_prefix_and_a_unit() {
    run_with_faults(&World::new()).await;
    let imposed = [RECOVERED_COUNT, STALE_DURATION, RUNS_TOTAL];
    let names: BTreeSet<String> = meter().series().into_iter().map(|(name, _)| name).collect();
    assert!(names.len() >= 20, "{names:?}");
    for name in &names {
        let (kind, help) = meter().description(name).expect(name);
        assert!(help.ends_with('.'), "{name}: {help}");
        if imposed.contains(&name.as_str()) {
            continue;
        }
        assert!(name.starts_with("tenure_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(name.ends_with("_seconds"), kind == "histogram", "{name}");
    }
}

/// Events may have any number of topics, so the label is the pattern of the route.
#[tokio::test(start_paused = true)]
async fn settled_items_are_counted_by_queue_and_handlers_measured_by_route() {
    let world = World::new();
    let mail = QueueName::new("mail").unwrap();
    world
        .store
        .add_queue(&mail, QueueRules::default())
        .await
        .unwrap();
    let probe = Probe::default();
    let mut topics = Topics::new();
    for pattern in ["order.*", "*"] {
        let handler = probe.working(|_| Duration::from_secs(1));
        topics.add(TopicPattern::new(pattern).unwrap(), Arc::new(handler));
    }
    let event = |topic: &str, queue: &str| NewEvent::new(topic, &1).queue(queue).build().unwrap();
    let events = [
        event("order.paid", "mail"),
        event("order.sent", "default"),
        event("user.added", "mail"),
    ];
    world.enqueue_all(&events).await;
    let engine = world.start(topics, World::config());
    world.until(|counts| counts.done == 3).await;
    let worker = engine.worker().clone();
    engine.stop().await;
    let count =
        |queue, outcome| meter().count(&worker, SETTLED, &[("queue", queue), ("outcome", outcome)]);
    assert_eq!((count("mail", "done"), count("default", "done")), (2, 1));
    assert_eq!(count("mail", "dead"), 0);
    for (pattern, runs) in [("order.*", 2), ("*", 1), ("order.paid", 0)] {
        let samples = meter().samples(&worker, HANDLER_SECONDS, &[("topic", pattern)]);
        assert_eq!(samples.len(), runs, "{pattern}: {samples:?}");
        assert!(samples.iter().all(|seconds| (seconds - 1.0).abs() < 0.1));
    }
    let picked_up = meter().samples(&worker, PICKUP_SECONDS, &[("queue", "mail")]);
    assert_eq!(picked_up.len(), 2);
}

/// This metric shows that an idle worker stays within its limit of calls.
#[tokio::test(start_paused = true)]
async fn every_call_of_the_store_is_counted_by_its_verb() {
    let world = World::new();
    let worker = run_with_faults(&world).await;
    assert_calls_are_counted(&world, &worker);
    assert_eq!(world.faulty.count(|call| matches!(call, Verb::Leave)), 1);
}

pub(crate) fn assert_calls_are_counted(world: &World, worker: &WorkerId) {
    type Is = fn(&Verb) -> bool;
    let verbs: [(&str, Is); 10] = [
        ("claim", |call| matches!(call, Verb::Claim(_))),
        ("settle", |call| matches!(call, Verb::Settle(_))),
        ("settle_and_claim", |call| {
            matches!(call, Verb::SettleAndClaim(..))
        }),
        ("renew", |call| matches!(call, Verb::Renew(_))),
        ("reap", |call| matches!(call, Verb::Reap(_))),
        ("prune", |call| matches!(call, Verb::Prune(_))),
        ("step_replay", |call| matches!(call, Verb::StepReplay)),
        ("report", |call| matches!(call, Verb::Report(_))),
        ("settings", |call| {
            matches!(call, Verb::Settings | Verb::Queues)
        }),
        ("leave", |call| matches!(call, Verb::Leave)),
    ];
    let (mut counted, mut made) = (Vec::new(), Vec::new());
    for (verb, is_it) in verbs {
        let count = meter().count(worker, STORE_CALLS, &[("verb", verb)]);
        counted.push((verb, count));
        made.push((verb, u64::try_from(world.faulty.count(is_it)).unwrap()));
    }
    assert_eq!(counted, made);
}

#[tokio::test(start_paused = true)]
async fn a_warning_names_its_worker_even_when_nothing_else_is_logged() {
    let quiet = tracing_subscriber::registry()
        .with(log::Capture)
        .with(LevelFilter::WARN);
    let world = World::new();
    let guard = tracing::subscriber::set_default(quiet);
    world.enqueue(1).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_mins(1)), World::config());
    probe.begun(1).await;
    world
        .faulty
        .rule(|call| matches!(call, Verb::Renew(_)).then_some(Fault::Before));
    sleep(Duration::from_secs(20)).await;
    let lines = log::lines(engine.worker());
    assert!(
        lines.iter().any(|line| line.text.contains("lost a lease")),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|line| line.level <= tracing::Level::WARN),
        "{lines:?}"
    );
    drop(engine);
    drop(guard);
}
