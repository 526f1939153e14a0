//! An engine on rows: leases go to the rows, everything else to the base store; claims recover
//! lapsed rows, filter by kind and take one row each; the engine's own timing applies.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Cluster as _, Intake as _, Isolation, Operate as _};
use tenure_core::{Event, LeaseTiming, Setting, State, Term};
use tenure_engine::metrics::{RECOVERED_COUNT, RUNS_TOTAL, STALE_DURATION};
use tenure_engine::{Duties, Duty, EngineConfig, Leases, Recovery, RowClaims};
use tokio::time::{Instant, sleep};

use crate::faulty_store::Verb;
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe, until};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// The configuration of a worker on jobs.
pub(crate) fn config(concurrency: u32) -> EngineConfig {
    let mut config = World::config();
    config.settings.concurrency = concurrency;
    config.settings.batch = 1;
    config.duties = Duties {
        reaper: Duty::Left,
        pruner: Duty::Left,
        replayer: Duty::Left,
    };
    config.timing = Some(LeaseTiming {
        term: Term::new(5 * MINUTE).unwrap(),
        heartbeat: MINUTE,
        max_hold: 60 * MINUTE,
    });
    config.rows = RowClaims {
        leases: Leases::Jobs,
        table: Some("jobs".to_owned()),
        kinds: vec!["import".to_owned(), "export".to_owned()],
        recovery: Recovery::InClaim,
        usual: None,
    };
    config
}

#[tokio::test(start_paused = true)]
async fn leases_go_to_the_rows_and_everything_else_to_the_base_store() {
    let (rows, base) = (World::new(), World::new());
    let ids = rows.enqueue(3).await;
    base.enqueue(1).await;
    let mut config = config(2);
    config.rows.leases = rows.rows();
    let probe = Probe::default();
    let engine = base.start(probe.working(|_| MINUTE), config);
    probe.begun(2).await;
    let (_, workers) = base.store.workers(10).await.unwrap();
    assert_eq!(workers.len(), 1, "it is registered with the base");
    let report = &workers[0].report;
    assert_eq!(report.queues, "table jobs, kind import, kind export");
    assert!(!report.serves(&tenure_core::QueueName::default()));
    rows.until(|counts| counts.done == 3).await;
    assert_eq!(probe.of(ids[2]).len(), 1);
    engine.stop().await;

    let counts = base.store.count(None).await.unwrap();
    assert_eq!(counts.pending(), 1, "the base is not touched");
    let of_rows = |call: &Verb| {
        matches!(
            call,
            Verb::Claim(_) | Verb::Renew(_) | Verb::Settle(_) | Verb::SettleAndClaim(..)
        )
    };
    assert_eq!(base.faulty.count(of_rows), 0);
    assert_eq!(rows.faulty.count(|call| !of_rows(call)), 0);
    assert_eq!(base.faulty.count(|call| matches!(call, Verb::Queues)), 0);
}

/// Proves: S5-024
#[tokio::test(start_paused = true)]
async fn a_claim_takes_one_row_of_its_kinds_and_recovers_lapsed_rows() {
    let world = World::new();
    world.enqueue(5).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), config(2));
    probe.begun(2).await;
    let most = || world.store.count(None);
    assert_eq!(most().await.unwrap().claimed, 2, "nothing is claimed ahead");
    world.until(|counts| counts.done == 5).await;
    sleep(MINUTE).await;
    engine.stop().await;

    let claims = world.faulty.claims();
    for claim in &claims {
        assert_eq!((claim.limit, claim.isolation), (1, Isolation::Shared));
        assert_eq!(claim.kinds, ["import", "export"]);
        assert!(claim.recovery.is_some(), "no reaper runs beside it");
    }
    let others = |call: &Verb| matches!(call, Verb::Reap(_) | Verb::Prune(_) | Verb::StepReplay);
    assert_eq!(world.faulty.count(others), 0);
}

/// Proves: S5-006, S5-043
#[tokio::test(start_paused = true)]
async fn the_timing_of_the_engine_overrides_the_cluster_settings() {
    let world = World::new();
    let settings = [
        (Setting::Term, "3s"),
        (Setting::Heartbeat, "500ms"),
        (Setting::Concurrency, "7"),
        (Setting::MaxRetries, "4"),
    ];
    world.change(&settings).await;
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| 9 * MINUTE), config(1));
    probe.begun(1).await;
    let began = Instant::now();
    let until_at = world.locked_until(ids[0]).await;
    let term = until_at.since(world.at(began));
    assert!(term > 4 * MINUTE && term <= 5 * MINUTE, "{term:?}");
    assert_eq!(engine.settings().max_retries, 4, "other settings apply");
    assert_eq!(engine.settings().concurrency, 1, "the engine's own");

    let beats = || world.faulty.count(|call| matches!(call, Verb::Renew(_)));
    sleep(8 * MINUTE).await;
    let beats = beats();
    assert!((8..=11).contains(&beats), "{beats} in eight minutes");
    assert_eq!(probe.ended(ids[0]).await.end, Some(End::Answered));
    until(|| engine.health().running == 1).await;

    // A stop does not wait for a whole term.
    let stopped = Instant::now();
    engine.stop().await;
    assert!(stopped.elapsed() < MINUTE, "{:?}", stopped.elapsed());
    assert_eq!(world.find(ids[1]).await.state, State::Pending);
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_an_invalid_timing_does_not_start() {
    let world = World::new();
    let mut config = config(1);
    if let Some(timing) = &mut config.timing {
        timing.heartbeat = 2 * MINUTE;
    }
    let parts = tenure_engine::Parts {
        store: world.store(),
        keeper_store: world.store(),
        worker: crate::world::fresh_worker(),
        handler: Arc::new(Probe::default().working(|_| MINUTE)),
        config,
        wrap: None,
    };
    let problems = tenure_engine::Engine::start(parts).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
}

/// The queues of the base store are for events only.
#[tokio::test(start_paused = true)]
async fn rows_are_claimed_although_every_queue_is_paused() {
    use tenure_core::store::{Pause, Queues as _};
    let (rows, base) = (World::new(), World::new());
    let queue = tenure_core::QueueName::default();
    let paused = base.store.pause_queue(&queue, Pause::Begin).await;
    assert!(paused.unwrap().is_accepted());
    let event = Event::new("order.paid", &1).unwrap();
    rows.store.enqueue(&[event]).await.unwrap();
    let mut config = config(1);
    config.rows.leases = rows.rows();
    let probe = Probe::default();
    let _engine = base.start(probe.working(|_| MINUTE), config);
    probe.begun(1).await;
}

#[tokio::test(start_paused = true)]
async fn rows_recovered_by_a_claim_are_counted_like_those_of_the_reaper() {
    let world = World::new();
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let killed = world.start(probe.working(|_| 60 * MINUTE), config(2));
    probe.begun(2).await;
    let locked_until = world.locked_until(ids[0]).await;
    drop(killed);
    sleep(7 * MINUTE).await;

    let stale = world.at(Instant::now()).since(locked_until).as_secs_f64();
    let other = world.start(probe.working(|_| Duration::ZERO), config(2));
    world.until(|counts| counts.done == 2).await;
    assert_eq!(meter().count(other.worker(), RECOVERED_COUNT, &[]), 2);
    let samples = meter().samples(other.worker(), STALE_DURATION, &[]);
    assert_eq!(samples.len(), 2);
    assert!(
        samples.iter().all(|sample| (sample - stale).abs() < 1.0),
        "{samples:?}, not {stale}"
    );
    let lines = log::matching(other.worker(), "reaped lapsed leases");
    assert!(!lines.is_empty(), "it is logged, too");
    assert_eq!(
        meter().count(other.worker(), RUNS_TOTAL, &[]),
        0,
        "no reaper ran"
    );
}

/// The usual timing of a table applies unless this process or the cluster sets another timing, even
/// while the engine runs.
///
/// Proves: S5-043, S5-044
#[tokio::test(start_paused = true)]
async fn a_table_has_its_usual_timing_unless_another_is_set() {
    let usual = || {
        let mut config = config(1);
        config.timing = None;
        config.rows.usual = Some((Term::new(5 * MINUTE).unwrap(), MINUTE));
        config
    };
    let start = |world: &World, config| world.start(Probe::default().working(|_| MINUTE), config);
    let world = World::new();
    let engine = start(&world, usual());
    let term_of = |engine: &tenure_engine::Engine| engine.settings().term.length();
    sleep(MINUTE).await;
    assert_eq!(term_of(&engine), 5 * MINUTE);
    assert_eq!(engine.settings().heartbeat(), MINUTE);
    let stop = Duration::from_secs(25);
    assert_eq!(engine.settings().shutdown_timeout(), stop, "unchanged");

    world
        .change_and_follow(&engine, &[(Setting::Term, "20s")])
        .await;
    assert_eq!(term_of(&engine), Duration::from_secs(20));
    assert_eq!(engine.settings().heartbeat(), Duration::from_secs(5));
    engine.stop().await;

    let mut own = usual();
    own.settings.term = Term::HEAVY;
    let engine = start(&World::new(), own);
    sleep(MINUTE).await;
    assert_eq!(term_of(&engine), MINUTE, "its own overrides the usual");
    engine.stop().await;

    // If a setting does not fit the usual term, the settings apply without the usual term.
    let mut short = usual();
    short.settings.max_hold = Some(2 * MINUTE);
    let engine = start(&World::new(), short);
    sleep(MINUTE).await;
    assert_eq!(term_of(&engine), Duration::from_secs(30));
    engine.stop().await;
}
