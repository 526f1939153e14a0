//! Settings: an engine with invalid settings does not start; each setting can be changed while
//! workers run; a change applies as a whole or not at all; held leases keep their timing.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{ChangeSettings, Cluster as _};
use tenure_core::{Event, Failure, OnDead, Outcome, Setting, Settings, State, Term, WorkerId};
use tenure_engine::metrics::{SETTINGS_REFUSED, SETTINGS_VERSION};
use tenure_engine::{Engine, EngineConfig, EventFn, Parts};
use tokio::time::{Instant, sleep};
use tracing::Level;

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe, until};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// Proves: S1-019, S1-033, S1-041, S2-030, S2-033
#[tokio::test(start_paused = true)]
async fn an_engine_with_invalid_settings_does_not_start_and_lists_every_problem() {
    let mut settings = Settings::default();
    for (setting, text) in [
        // Each value is just past its limit; the shutdown timeout may equal the term.
        (Setting::Heartbeat, "10s"),
        (Setting::ReaperInterval, "30s"),
        (Setting::ShutdownTimeout, "30001ms"),
        (Setting::MaxHold, "29999ms"),
        (Setting::Concurrency, "0"),
        (Setting::Batch, "0"),
        (Setting::MaxCrashes, "2"),
    ] {
        settings.set(setting, text).unwrap();
    }
    let world = World::new();
    let parts = |settings| Parts {
        store: world.store(),
        keeper_store: world.store(),
        worker: WorkerId::new("bad", 1).unwrap(),
        handler: Arc::new(Probe::default().working(|_| MINUTE)),
        config: EngineConfig {
            settings,
            ..World::config()
        },
        wrap: None,
    };
    let problems = Engine::start(parts(settings)).unwrap_err();
    assert_eq!(problems.len(), 7, "{problems:?}");
    sleep(MINUTE).await;
    assert!(world.faulty.calls().is_empty(), "nothing was started");

    let mut settings = Settings::default();
    for (setting, text) in [
        (Setting::Heartbeat, "9999ms"),
        (Setting::ReaperInterval, "29999ms"),
        (Setting::ShutdownTimeout, "30s"),
        (Setting::MaxHold, "30s"),
    ] {
        settings.set(setting, text).unwrap();
    }
    assert!(Engine::start(parts(settings)).is_ok());
}

/// Checks each setting by its effect on the running engine. A new setting needs an arm here.
///
/// Proves: S1-012, S1-050
#[tokio::test(start_paused = true)]
async fn every_setting_takes_effect_while_the_engine_runs() {
    for setting in Setting::ALL {
        match setting {
            Setting::Term => term().await,
            Setting::Heartbeat => heartbeat().await,
            Setting::MaxHold => max_hold().await,
            Setting::ReaperInterval => reaper_interval().await,
            Setting::Concurrency => concurrency().await,
            Setting::Batch => batch().await,
            Setting::ShutdownTimeout => shutdown_timeout().await,
            Setting::MaxRetries => max_retries().await,
            Setting::RetryBase => retry_base().await,
            Setting::RetryCap => retry_cap().await,
            Setting::MaxCrashes => max_crashes().await,
            Setting::OnDead => on_dead().await,
            Setting::RetentionPublished => retention(Setting::RetentionPublished).await,
            Setting::RetentionDead => retention(Setting::RetentionDead).await,
        }
    }
}

async fn on_dead() {
    let world = World::new();
    let engine = world.start(
        EventFn::new(|_, _| async { Ok(Outcome::dead("a planted rejection")) }),
        World::config(),
    );
    for (text, rule) in [("skip", OnDead::Skip), ("block", OnDead::Block)] {
        world
            .change_and_follow(&engine, &[(Setting::OnDead, text)])
            .await;
        let from = Instant::now();
        let id = world.enqueue(1).await[0];
        engine.wake();
        until(|| world.faulty.count(|call| call.is_settle_of(id)) > 0).await;
        sleep(MINUTE).await;
        let calls = world.faulty.since(from);
        let settle = calls.iter().find(|call| call.is_settle_of(id));
        let settle = settle.and_then(Verb::settle).unwrap();
        assert_eq!(settle.on_dead, rule);
        let is_so = |call: &Verb| matches!(call, Verb::Reap(reap) if reap.policy.on_dead() == rule);
        assert!(calls.iter().any(is_so), "the reaper follows it, too");
    }
}

async fn term() {
    let world = World::new();
    let old = world.enqueue(1).await[0];
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(80)), World::config());
    probe.begun(1).await;
    let old_token = world.token_of(old).await;
    world
        .change_and_follow(&engine, &[(Setting::Term, "1m")])
        .await;
    let new = world.enqueue(1).await[0];
    engine.wake();
    probe.begun(2).await;
    let hold = world.find(new).await.hold.unwrap();
    assert_eq!(hold.until.since(hold.claimed_at), MINUTE);
    world.until(|counts| counts.done == 2).await;
    for (_, call) in world.faulty.calls() {
        if let Verb::Renew(renew) = call {
            let is_old = renew.tokens.contains(&old_token);
            let term = if is_old { Term::STANDARD } else { Term::HEAVY };
            assert_eq!(renew.term, term, "a held lease keeps its term");
        }
    }
    assert_eq!(probe.calls().len(), 2);
}

async fn heartbeat() {
    let world = World::new();
    world.enqueue(1).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());
    world
        .change_and_follow(&engine, &[(Setting::Heartbeat, "2s")])
        .await;
    let new = world.enqueue(1).await[0];
    engine.wake();
    probe.begun(2).await;
    let token = world.token_of(new).await;
    sleep(Duration::from_secs(20)).await;
    let beats = world.faulty.count(|call| call.is_renew_of(&token));
    assert!((9..=20).contains(&beats), "{beats}");
}

async fn max_hold() {
    let world = World::new();
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_hours(1)), World::config());
    world
        .change_and_follow(&engine, &[(Setting::MaxHold, "40s")])
        .await;
    let id = world.enqueue(1).await[0];
    let call = probe.ended(id).await;
    let ran = call.ended.unwrap() - call.began;
    assert!(
        ran >= Duration::from_secs(40) && ran < Duration::from_secs(41),
        "{ran:?}"
    );
}

async fn reaper_interval() {
    let world = World::new();
    let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
    world
        .change_and_follow(&engine, &[(Setting::ReaperInterval, "2s")])
        .await;
    let from = Instant::now();
    sleep(MINUTE).await;
    let runs = world.faulty.since(from);
    let runs = runs
        .iter()
        .filter(|call| matches!(call, Verb::Reap(_)))
        .count();
    assert!((29..=42).contains(&runs), "{runs}");
}

async fn concurrency() {
    let world = World::new();
    world.enqueue(300).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
    probe.begun(30).await;
    assert_eq!(probe.take_peak(), 10, "the default");
    for (text, most) in [("3", 3), ("25", 25), ("1", 1), ("10", 10)] {
        world
            .change_and_follow(&engine, &[(Setting::Concurrency, text)])
            .await;
        // Running items finish; no more are started.
        until(|| probe.running() <= most).await;
        probe.take_peak();
        until(|| probe.running() == most).await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(probe.take_peak(), most);
    }
}

async fn batch() {
    let world = World::new();
    let config = World::config_with(&[(Setting::Concurrency, "50")]);
    let engine = world.start(Probe::default().working(|_| Duration::from_secs(1)), config);
    world
        .change_and_follow(&engine, &[(Setting::Batch, "7")])
        .await;
    let from = Instant::now();
    world.enqueue(100).await;
    world.until(|counts| counts.done == 100).await;
    let calls = world.faulty.since(from);
    let limits = calls
        .iter()
        .filter_map(Verb::claim)
        .map(|claim| claim.limit);
    assert_eq!(limits.max(), Some(7));
    drop(engine);
}

async fn shutdown_timeout() {
    let world = World::new();
    world.enqueue(1).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());
    world
        .change_and_follow(&engine, &[(Setting::ShutdownTimeout, "5s")])
        .await;
    let from = Instant::now();
    assert_eq!(engine.stop().await.left, 0);
    let took = from.elapsed();
    assert!(
        took >= Duration::from_secs(5) && took < Duration::from_secs(6),
        "{took:?}"
    );
}

async fn max_retries() {
    let world = World::new();
    let handler = EventFn::new(|_, _| async { Err::<Outcome, _>(Failure::new("no")) });
    let engine = world.start(handler, World::config());
    world
        .change_and_follow(&engine, &[(Setting::MaxRetries, "1")])
        .await;
    let id = world.enqueue(1).await[0];
    world.until(|counts| counts.dead == 1).await;
    assert_eq!(world.find(id).await.counters.failures, 2);
}

/// The first delay of an event that fails, under these settings.
async fn first_delay(changes: &[(Setting, &str)]) -> Duration {
    let world = World::new();
    let handler = EventFn::new(|_, _| async { Err::<Outcome, _>(Failure::new("no")) });
    let engine = world.start(handler, World::config());
    world.change_and_follow(&engine, changes).await;
    let id = world.enqueue(1).await[0];
    engine.wake();
    until(|| world.faulty.count(|call| call.is_settle_of(id)) > 0).await;
    let calls = world.faulty.calls();
    let mut settles = calls.iter().filter_map(|(_, call)| call.settle());
    let outcome = settles.find_map(|settle| settle.items.first().cloned());
    let Some((_, Outcome::Retry { after, .. })) = outcome else {
        panic!("it was not retried: {outcome:?}");
    };
    after
}

/// The delay is a random part of 20 h: at most 1 s once in 72,000 runs.
async fn retry_base() {
    let long = [(Setting::RetryBase, "20h"), (Setting::RetryCap, "20h")];
    assert!(first_delay(&long).await > Duration::from_secs(1));
}

async fn retry_cap() {
    let short = [(Setting::RetryBase, "1ms"), (Setting::RetryCap, "1ms")];
    // The minimum of all delays.
    assert_eq!(first_delay(&short).await, Duration::from_millis(100));
}

async fn max_crashes() {
    let world = World::new();
    let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
    world
        .change_and_follow(&engine, &[(Setting::MaxCrashes, "3")])
        .await;
    sleep(MINUTE).await;
    let calls = world.faulty.calls();
    let last = calls.iter().rev().find_map(|(_, call)| match call {
        Verb::Reap(reap) => Some(reap.policy.max_crashes()),
        _ => None,
    });
    assert_eq!(last, Some(3));
}

async fn retention(setting: Setting) {
    let world = World::new();
    let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
    world.change_and_follow(&engine, &[(setting, "1h")]).await;
    sleep(3 * MINUTE).await;
    let calls = world.faulty.calls();
    let last = calls.iter().rev().find_map(|(_, call)| match call {
        Verb::Prune(prune) => Some((prune.done, prune.dead)),
        _ => None,
    });
    let days = |days: u64| Duration::from_hours(24 * days);
    let expected = match setting {
        Setting::RetentionPublished => (Duration::from_hours(1), days(30)),
        _ => (days(7), Duration::from_hours(1)),
    };
    assert_eq!(last, Some(expected), "{setting}");
}

#[tokio::test(start_paused = true)]
async fn several_values_are_applied_as_one_change() {
    let world = World::new();
    let config = World::config_with(&[(Setting::Heartbeat, "7s")]);
    let engine = world.start(Probe::default().working(|_| MINUTE), config);
    // The new term is not valid with the old heartbeat.
    world
        .change(&[(Setting::Term, "10s"), (Setting::Heartbeat, "2s")])
        .await;
    let active = || {
        let settings = engine.settings();
        (
            settings.term.length().as_secs(),
            settings.heartbeat().as_secs(),
        )
    };
    until(|| {
        assert!([(30, 7), (10, 2)].contains(&active()), "{:?}", active());
        active() == (10, 2)
    })
    .await;
    let version = || meter().level(engine.worker(), SETTINGS_VERSION);
    assert!((version() - 1.0).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn settings_that_do_not_fit_are_refused_as_a_whole_and_logged_once() {
    let world = World::new();
    let engine = world.start(Probe::default().working(|_| MINUTE), World::config());
    sleep(Duration::from_secs(1)).await;
    let before = engine.settings();
    let change = |version, values: &[(&str, &str)]| ChangeSettings {
        version,
        values: values
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned())))
            .collect(),
    };
    // The store accepts any values; another program may have written them.
    let bad = change(
        0,
        &[("lease.heartbeat", "20s"), ("worker.concurrency", "3")],
    );
    world.store.change_settings(&bad).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(engine.settings(), before, "none of the values apply");
    let refused = || meter().count(engine.worker(), SETTINGS_REFUSED, &[]);
    assert_eq!(refused(), 1);
    let lines = log::matching(engine.worker(), "refused the cluster settings");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].level, Level::ERROR);
    assert!(lines[0].field("problems").contains("lease.heartbeat"));

    let worse = change(1, &[("retry.max_crashes", "1")]);
    world.store.change_settings(&worse).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(refused(), 2, "another version is counted again");

    let good = change(2, &[("lease.heartbeat", "5s"), ("retry.max_crashes", "4")]);
    world.store.change_settings(&good).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(engine.settings().concurrency, 3);
    assert_eq!(engine.settings().heartbeat(), Duration::from_secs(5));
    assert_eq!(refused(), 2);
}

/// This includes leases whose claim was in progress when the settings changed.
#[tokio::test(start_paused = true)]
async fn leases_of_a_short_term_survive_when_the_term_grows() {
    let world = World::new();
    let ids = world.enqueue(30).await;
    world.faulty.rule(|call| {
        let is_claim = matches!(call, Verb::Claim(_) | Verb::SettleAndClaim(..));
        is_claim.then_some(Fault::Slow(Duration::from_millis(1500)))
    });
    let probe = Probe::default();
    let config = World::config_with(&[(Setting::Term, "2s"), (Setting::Batch, "1")]);
    let engine = world.start(probe.working(|_| Duration::from_secs(5)), config);
    probe.begun(1).await;
    world
        .change_and_follow(&engine, &[(Setting::Term, "1h")])
        .await;
    world.until(|counts| counts.done == 30).await;
    for id in ids {
        let calls = probe.of(id);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].end, Some(End::Answered));
        assert_eq!(world.find(id).await.state, State::Done);
    }
    let lost = log::matching(engine.worker(), "lost a lease");
    assert!(lost.is_empty(), "{lost:?}");
}

/// No other lease is held, so only the answer to the claim can shorten the sleep of the heartbeat.
#[tokio::test(start_paused = true)]
async fn a_claim_answered_after_the_term_grew_is_renewed_by_its_own_term() {
    let world = World::new();
    let ids = world.enqueue(1).await;
    let is_claim = |call: &Verb| matches!(call, Verb::Claim(_) | Verb::SettleAndClaim(..));
    let slow = Fault::Slow(Duration::from_secs(6));
    world.faulty.once(is_claim, slow);
    let probe = Probe::default();
    let config = World::config_with(&[(Setting::Term, "10s"), (Setting::Batch, "1")]);
    let engine = world.start(probe.working(|_| Duration::from_secs(20)), config);
    until(|| world.faulty.count(is_claim) > 0).await;
    world
        .change_and_follow(&engine, &[(Setting::Term, "1h")])
        .await;
    assert_eq!(probe.of(ids[0]).len(), 0, "the claim is still unanswered");
    world.until(|counts| counts.done == 1).await;
    let calls = probe.of(ids[0]);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].end, Some(End::Answered));
}

#[tokio::test(start_paused = true)]
async fn a_handler_knows_its_time_left() {
    let world = World::new();
    world.enqueue(1).await;
    let (sender, time_left) = tokio::sync::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let engine = world.start(
        EventFn::new(move |_: Event, cx| {
            let sender = sender.lock().unwrap().take();
            async move {
                if let Some(sender) = sender {
                    sender.send(cx.time_left()).unwrap();
                }
                Ok(Outcome::Done)
            }
        }),
        World::config(),
    );
    assert_eq!(time_left.await.unwrap(), Duration::from_secs(90));
    engine.stop().await;
}
