//! The reaper runs at its interval and reports the items that it reaped; a worker whose reaper does
//! not run is not ready.

use std::time::Duration;

use tenure_core::Setting;
use tenure_engine::metrics::{
    REAPED, REAPED_STALE_SECONDS, REAPER_RUNS, RECOVERED_COUNT, RUNS_TOTAL, STALE_DURATION,
};
use tenure_engine::{Duties, Duty, Engine, EngineConfig};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::meter;
use crate::probe::{Probe, until};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

fn reaper_problem(engine: &Engine) -> Option<String> {
    let checks = engine.health().checks;
    let reaper = checks.into_iter().find(|check| check.name == "reaper");
    reaper.expect("there is a reaper check").problem
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
        .filter(|(_, call)| matches!(call, Verb::Reap(_)))
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
        meter().count(engine.worker(), RUNS_TOTAL, &[]),
        u64::try_from(runs.len()).unwrap()
    );
}

/// Proves: S1-034, S1-035, S1-036
#[tokio::test(start_paused = true)]
async fn the_reaper_counts_the_items_that_it_reaped_and_how_long_they_were_stale() {
    assert_eq!(
        [RECOVERED_COUNT, STALE_DURATION, RUNS_TOTAL],
        [
            "reaper_recovered_count",
            "reaper_stale_duration",
            "reaper_runs_total"
        ],
        "the names that the requirements fix, with underscores"
    );
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let killed = world.start(probe.working(|_| MINUTE), World::config());
    probe.begun(3).await;
    let locked_until = world.locked_until(ids[0]).await;
    drop(killed);
    sleep(2 * MINUTE).await;

    let other = world.start(
        Probe::default().working(|_| Duration::ZERO),
        World::config(),
    );
    let stale = world.at(Instant::now()).since(locked_until).as_secs_f64();
    until(|| meter().count(other.worker(), RECOVERED_COUNT, &[]) == 3).await;
    let samples = meter().samples(other.worker(), STALE_DURATION, &[]);
    assert_eq!(samples.len(), 3);
    assert!(
        samples.iter().all(|sample| (sample - stale).abs() < 0.1),
        "{samples:?}, not {stale}"
    );
    assert!(meter().count(other.worker(), RUNS_TOTAL, &[]) >= 1);
    // The metrics under Tenure's own names have the same values.
    assert_eq!(meter().count(other.worker(), REAPED, &[]), 3);
    let own = meter().samples(other.worker(), REAPED_STALE_SECONDS, &[]);
    assert_eq!(own, samples);
    assert!(meter().count(other.worker(), REAPER_RUNS, &[]) >= 1);
    let lines = log::matching(other.worker(), "reaped lapsed leases");
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
            .rule(move |call| matches!(call, Verb::Reap(_)).then_some(fault));
        let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
        sleep(Duration::from_secs(2)).await;
        assert!(reaper_problem(&engine).is_some(), "it never ran");
        assert!(!engine.health().is_ready());

        world.faulty.heal();
        until(|| engine.health().is_ready()).await;
        world
            .faulty
            .rule(move |call| matches!(call, Verb::Reap(_)).then_some(fault));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(reaper_problem(&engine), None, "two intervals may be missed");
        sleep(Duration::from_secs(21)).await;
        assert!(
            reaper_problem(&engine).is_some(),
            "no run for more than three intervals"
        );
        world.faulty.heal();
        until(|| engine.health().is_ready()).await;
    }
}

/// After an outage a reaper run may take longer than the interval; it still counts as a run.
#[tokio::test(start_paused = true)]
async fn a_reaper_run_longer_than_its_interval_leaves_the_worker_ready() {
    let world = World::new();
    let config = || World::config_with(&[(Setting::Batch, "1"), (Setting::Concurrency, "500")]);
    world.enqueue(500).await;
    let probe = Probe::default();
    let killed = world.start(probe.working(|_| MINUTE), config());
    probe.begun(500).await;
    drop(killed);
    sleep(MINUTE).await;
    world
        .faulty
        .rule(|call| matches!(call, Verb::Reap(_)).then_some(Fault::Slow(Duration::from_secs(6))));
    let other = world.start(Probe::default().working(|_| Duration::ZERO), config());
    sleep(Duration::from_secs(7)).await;
    for _ in 0..30 {
        assert_eq!(reaper_problem(&other), None);
        sleep(Duration::from_secs(1)).await;
    }
    world.until(|counts| counts.done == 500).await;
    assert_eq!(meter().count(other.worker(), RECOVERED_COUNT, &[]), 500);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_leaves_its_duties_to_others_performs_none() {
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
    let is_duty = |call: &Verb| matches!(call, Verb::Reap(_) | Verb::Prune(_) | Verb::StepReplay);
    assert_eq!(world.faulty.count(is_duty), 0);
}
