//! Hand-written workers of an application, with the literal statements of the specifications, run
//! next to Tenure's workers: on adopted tables, and on Tenure's own jobs and checkpoints. Both
//! kinds are killed with -9 in the middle of a row.
//!
//! All workers record the begin and the end of each piece of work in one file. The test pauses a
//! worker that has begun a piece of work, and kills the worker if the file still shows no end. So
//! every kill costs a lease.

mod ended;
mod scene;
mod side;
mod statements;
mod storm;
mod worker;

use tenure_nemesis::{Schedule, check, report, say};

use scene::Scene;
use storm::Storm;

use crate::program::{Place, postgres, sqlite};

/// Asserts that no rule is broken, that every row has its required final state, and that most kills
/// interrupted a row.
async fn harmed(scene: Scene, place: Place) {
    // Each of the four workers is killed at least once.
    let kills = Schedule::from_environment().kills.max(4);
    let name = scene.name;
    let mut storm = Storm::begin(scene, &place).await;
    storm.rage(kills).await;
    let (history, killed) = storm.finish().await;
    let (violations, summary) = check(&history);
    say(&format!("{name}, {killed} kills: {summary}"));
    assert!(violations.is_empty(), "{}", report(&violations, &history));
    storm.expect_ends();
    assert_eq!(killed, kills, "{summary}");
    // On a busy machine a worker may settle after it was seen holding a row and before its kill.
    assert!(summary.hits > kills / 2, "{summary}");
    // Both kinds took part. SQLite does not queue writers, so the shares of the two are random.
    for kind in ["hand-", "ours-"] {
        let done = history.works.iter().filter(|work| {
            let mut holds = work.holds_with(tenure::lease::OutcomeKind::Done);
            holds.any(|hold| hold.holder.starts_with(kind))
        });
        assert!(done.count() >= kills / 2, "{kind}: {summary}");
    }
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-030, S5-032, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_were_adopted_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::sync_jobs(), postgres().await).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-030, S5-032, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_were_adopted_survive_kills_of_both_kinds_of_workers_on_sqlite() {
    harmed(Scene::sync_jobs(), sqlite()).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_were_adopted_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::sync_checkpoints(), postgres().await).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_were_adopted_survive_kills_of_both_kinds_of_workers_on_sqlite() {
    harmed(Scene::sync_checkpoints(), sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_was_adopted_survives_kills_of_both_kinds_of_workers() {
    harmed(Scene::outbox(), postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_was_adopted_survives_kills_of_both_kinds_of_workers_on_sqlite() {
    harmed(Scene::outbox(), sqlite()).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-030, S5-032, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_jobs_and_chunks_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::own(), postgres().await).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-030, S5-032, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_jobs_and_chunks_survive_kills_of_both_kinds_of_workers_on_sqlite() {
    harmed(Scene::own(), sqlite()).await;
}

/// Not only a planted history but also a real run shows broken rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_take_what_others_hold_and_ends_that_change_are_noticed() {
    let place = sqlite();
    let mut storm = Storm::begin(Scene::careless(), &place).await;
    storm.plant().await;
    let (history, _) = storm.finish().await;
    let (violations, _) = check(&history);
    for rule in [
        "one holder at a time",
        "an end stays as it is",
        "done work has its effect",
    ] {
        let mut rules = violations.iter().map(|violation| violation.rule);
        assert!(rules.any(|it| it == rule), "{rule}: {violations:?}");
    }
}
