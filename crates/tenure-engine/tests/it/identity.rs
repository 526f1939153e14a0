//! Who it was: the worker's id stands in every line of the log and on every metric.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::store::Cluster as _;
use tenure_core::{Event, Failure, Outcome, Setting, WorkerId};
use tenure_engine::metrics::STORE_CALLS;
use tenure_engine::{Context, EventFn};
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::faulty::{Ask, Fault};
use crate::log;
use crate::meter::meter;
use crate::probe::Probe;
use crate::world::World;

/// Much of what can happen to a worker happens to this one.
async fn a_hard_life(world: &World) -> WorkerId {
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
        .rule(|ask| matches!(ask, Ask::Renew(_)).then_some(Fault::Hang));
    sleep(Duration::from_mins(1)).await;
    world.faulty.mend();
    world.change(&[(Setting::Heartbeat, "20s")]).await;
    sleep(Duration::from_secs(30)).await;
    let worker = engine.worker().clone();
    world
        .faulty
        .rule(|ask| matches!(ask, Ask::Leave).then_some(Fault::Before));
    engine.stop().await;
    worker
}

/// Proves: S1-045, S1-046
#[tokio::test(start_paused = true)]
async fn the_worker_is_named_in_every_line_and_on_every_metric() {
    let world = World::new();
    let worker = a_hard_life(&world).await;
    let lines = log::lines(&worker);
    let texts: BTreeSet<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    for expected in [
        "started",
        "stopped",
        "could not take leave of the cluster",
        "worked",
    ] {
        assert!(texts.contains(expected), "{expected}: {texts:?}");
    }
    assert!(texts.len() >= 12, "{texts:?}");
    let nameless = log::nameless();
    assert!(nameless.is_empty(), "{nameless:?}");

    let series = meter().series();
    assert!(
        series
            .iter()
            .all(|(_, labels)| labels.contains_key("worker")),
        "{series:?}"
    );
    let own = series
        .iter()
        .filter(|(_, labels)| labels.get("worker").is_some_and(|id| id == worker.as_str()));
    let names: BTreeSet<&str> = own.map(|(name, _)| name.as_str()).collect();
    assert!(names.len() >= 17, "{names:?}");
    // And where people look at workers.
    let (_, workers) = world.store.workers(10).await.unwrap();
    assert_eq!(workers[0].report.worker, worker);
    let is_own = |ask: &Ask| matches!(ask, Ask::Report(report) if report.worker == worker);
    assert!(world.faulty.count(is_own) > 1, "again and again");
}

/// The metric of the calls is what the promise about an idle worker is measured by.
#[tokio::test(start_paused = true)]
async fn every_call_of_the_store_is_counted_by_its_verb() {
    let world = World::new();
    let worker = a_hard_life(&world).await;
    assert_calls_are_counted(&world, &worker);
    assert_eq!(world.faulty.count(|ask| matches!(ask, Ask::Leave)), 1);
}

pub(crate) fn assert_calls_are_counted(world: &World, worker: &WorkerId) {
    type Is = fn(&Ask) -> bool;
    let verbs: [(&str, Is); 10] = [
        ("claim", |ask| matches!(ask, Ask::Claim(_))),
        ("settle", |ask| matches!(ask, Ask::Settle(_))),
        ("settle_and_claim", |ask| {
            matches!(ask, Ask::SettleAndClaim(..))
        }),
        ("renew", |ask| matches!(ask, Ask::Renew(_))),
        ("reap", |ask| matches!(ask, Ask::Reap(_))),
        ("prune", |ask| matches!(ask, Ask::Prune(_))),
        ("step_replay", |ask| matches!(ask, Ask::StepReplay)),
        ("report", |ask| matches!(ask, Ask::Report(_))),
        ("settings", |ask| matches!(ask, Ask::Settings | Ask::Queues)),
        ("leave", |ask| matches!(ask, Ask::Leave)),
    ];
    let (mut counted, mut asked) = (Vec::new(), Vec::new());
    for (verb, is_it) in verbs {
        let count = meter().count(worker, STORE_CALLS, &[("verb", verb)]);
        counted.push((verb, count));
        asked.push((verb, u64::try_from(world.faulty.count(is_it)).unwrap()));
    }
    assert_eq!(counted, asked);
}

/// Also where only warnings are kept.
#[tokio::test(start_paused = true)]
async fn a_warning_names_its_worker_even_when_nothing_else_is_logged() {
    let quiet = tracing_subscriber::registry()
        .with(log::Lines)
        .with(LevelFilter::WARN);
    let world = World::new();
    let guard = tracing::subscriber::set_default(quiet);
    world.enqueue(1).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_mins(1)), World::config());
    probe.begun(1).await;
    world
        .faulty
        .rule(|ask| matches!(ask, Ask::Renew(_)).then_some(Fault::Before));
    sleep(Duration::from_secs(20)).await;
    let lines = log::lines(engine.worker());
    assert!(
        lines.iter().any(|line| line.text.contains("lost a hold")),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|line| line.level <= tracing::Level::WARN),
        "{lines:?}"
    );
    drop(engine);
    drop(guard);
}
