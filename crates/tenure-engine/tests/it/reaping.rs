//! The reaper: it runs at its interval, tells what it did, and a worker without one is not ready.

use std::time::Duration;

use tenure_core::Setting;
use tenure_engine::metrics::{REAPER_RECOVERED, REAPER_RUNS, REAPER_STALE};
use tenure_engine::{Duties, Duty, Engine, EngineConfig};
use tokio::time::{Instant, sleep};

use crate::faulty::{Ask, Fault};
use crate::log;
use crate::meter::meter;
use crate::probe::{Probe, until};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

fn reaper_problem(engine: &Engine) -> Option<String> {
    let checks = engine.health().checks;
    let reaper = checks.into_iter().find(|check| check.name == "reaper");
    reaper.expect("it is looked at").problem
}

/// Proves: S1-024, S1-030
#[tokio::test(start_paused = true)]
async fn the_reaper_runs_at_its_interval_for_as_long_as_the_engine_does() {
    let world = World::new();
    let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
    sleep(10 * MINUTE).await;
    let calls = world.faulty.calls();
    let runs: Vec<Instant> = calls
        .iter()
        .filter(|(_, ask)| matches!(ask, Ask::Reap(_)))
        .map(|(at, _)| *at)
        .collect();
    let interval = engine.settings().reaper_interval();
    assert_eq!(interval, Duration::from_secs(10));
    for pair in runs.windows(2).skip(2) {
        let gap = pair[1] - pair[0];
        assert!(gap <= interval + Duration::from_millis(2), "{gap:?}");
        assert!(gap >= interval / 2, "{gap:?}");
    }
    assert!(runs.len() >= 60);
    assert_eq!(
        meter().count(engine.worker(), REAPER_RUNS, &[]),
        u64::try_from(runs.len()).unwrap()
    );
}

/// Proves: S1-034, S1-035, S1-036
#[tokio::test(start_paused = true)]
async fn the_reaper_counts_what_it_recovered_and_how_long_it_was_stale() {
    assert_eq!(
        [REAPER_RECOVERED, REAPER_STALE, REAPER_RUNS],
        [
            "reaper_recovered_count",
            "reaper_stale_duration",
            "reaper_runs_total"
        ],
        "the names of the seed, spelled as metrics are"
    );
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let doomed = world.start(probe.working(|_| MINUTE), World::config());
    probe.begun(3).await;
    let locked_until = world.locked_until(ids[0]).await;
    drop(doomed);
    sleep(2 * MINUTE).await;

    let other = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    let stale = world.at(Instant::now()).since(locked_until).as_secs_f64();
    until(|| meter().count(other.worker(), REAPER_RECOVERED, &[]) == 3).await;
    let seen = meter().seen(other.worker(), REAPER_STALE);
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter().all(|seen| (seen - stale).abs() < 0.1),
        "{seen:?}, not {stale}"
    );
    assert!(meter().count(other.worker(), REAPER_RUNS, &[]) >= 1);
    let lines = log::said(other.worker(), "reaped lapsed leases");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("items"), "3");
    world.until(|counts| counts.done == 3).await;
}

/// Proves: S1-026
#[tokio::test(start_paused = true)]
async fn a_worker_whose_reaper_does_not_run_is_not_ready() {
    for fault in [Fault::Before, Fault::Hang] {
        let world = World::new();
        world
            .faulty
            .rule(move |ask| matches!(ask, Ask::Reap(_)).then_some(fault));
        let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
        sleep(Duration::from_secs(2)).await;
        assert!(reaper_problem(&engine).is_some(), "it never ran");
        assert!(!engine.health().is_ready());

        world.faulty.mend();
        until(|| engine.health().is_ready()).await;
        world
            .faulty
            .rule(move |ask| matches!(ask, Ask::Reap(_)).then_some(fault));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(reaper_problem(&engine), None, "two intervals are no alarm");
        sleep(Duration::from_secs(21)).await;
        assert!(
            reaper_problem(&engine).is_some(),
            "no run for more than three intervals"
        );
        world.faulty.mend();
        until(|| engine.health().is_ready()).await;
    }
}

/// After an outage a run may take longer than the interval; it runs all the same.
#[tokio::test(start_paused = true)]
async fn a_long_run_of_the_reaper_is_a_run() {
    let world = World::new();
    let config = || World::config_with(&[(Setting::Batch, "1"), (Setting::Concurrency, "500")]);
    world.enqueue(500).await;
    let probe = Probe::default();
    let doomed = world.start(probe.working(|_| MINUTE), config());
    probe.begun(500).await;
    drop(doomed);
    sleep(MINUTE).await;
    world
        .faulty
        .rule(|ask| matches!(ask, Ask::Reap(_)).then_some(Fault::Slow(Duration::from_secs(6))));
    let other = world.start(Probe::default().working(|_| Duration::ZERO), config());
    sleep(Duration::from_secs(7)).await;
    for _ in 0..30 {
        assert_eq!(reaper_problem(&other), None);
        sleep(Duration::from_secs(1)).await;
    }
    world.until(|counts| counts.done == 500).await;
    assert_eq!(meter().count(other.worker(), REAPER_RECOVERED, &[]), 500);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_leaves_the_reaper_to_others_runs_none() {
    let world = World::new();
    let config = EngineConfig {
        duties: Duties {
            reaper: Duty::Left,
            pruner: Duty::Left,
            replayer: Duty::Left,
        },
        ..World::config()
    };
    let engine = world.start(Probe::default().working(|_| MINUTE), config);
    sleep(5 * MINUTE).await;
    assert!(engine.health().is_ready());
    engine.stop().await;
    let is_duty = |ask: &Ask| matches!(ask, Ask::Reap(_) | Ask::Prune(_) | Ask::StepReplay);
    assert_eq!(world.faulty.count(is_duty), 0);
}
