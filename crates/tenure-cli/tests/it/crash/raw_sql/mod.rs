//! Hand-written workers of an application, with the literal statements of the specifications, run
//! next to Tenure's workers: on adopted tables, and on Tenure's own jobs and checkpoints. Both
//! kinds are killed with SIGKILL in the middle of a row.
//!
//! All workers record the beginning and the end of each piece of work in one file. The test pauses
//! a worker that has begun a piece of work, and kills the worker if the file still shows no end. So
//! nearly every kill costs a lease.

mod ended;
mod scene;
mod side;
mod statements;
mod storm;
mod worker;

use tenure_nemesis::{Schedule, check, report, say};
use tenure_store::testing::Extent;

use scene::Scene;
use storm::Storm;

use crate::program::{Place, postgres, sqlite};

#[derive(Clone, Copy)]
enum On {
    Postgres,
    Sqlite,
}

/// Runs a storm on both databases; a short run takes one of them.
async fn harmed(scene: fn() -> Scene) {
    for on in Extent::chosen().of(&[On::Postgres, On::Sqlite], 1) {
        let place = match on {
            On::Postgres => postgres().await,
            On::Sqlite => sqlite(),
        };
        storm(scene(), place).await;
    }
}

/// Runs a storm; asserts that no rule is broken, that every row has its required final state, and
/// that most kills cost a lease.
async fn storm(scene: Scene, place: Place) {
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
    // On a busy machine a lease may have lapsed before its worker was killed.
    assert!(summary.hits > kills / 2, "{summary}");
    // Workers of both kinds took part. SQLite does not queue writers, so their shares are random.
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
async fn adopted_jobs_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::sync_jobs).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_chunks_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::sync_checkpoints).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_outbox_survives_kills_of_both_kinds_of_workers() {
    harmed(Scene::outbox).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-008, S5-030, S5-032, S5-042, S5-045
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_jobs_and_chunks_survive_kills_of_both_kinds_of_workers() {
    harmed(Scene::own).await;
}

/// The rules find violations in a real run, too, not only in a planted history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn careless_claims_changed_ends_and_work_without_effect_are_detected() {
    let place = sqlite();
    let mut storm = Storm::begin(Scene::careless(), &place).await;
    storm.plant().await;
    let (history, _) = storm.finish().await;
    let (violations, _) = check(&history);
    for rule in [
        "one holder at a time",
        "a final state never changes",
        "done work has its effect",
    ] {
        let mut rules = violations.iter().map(|violation| violation.rule);
        assert!(rules.any(|it| it == rule), "{rule}: {violations:?}");
    }
}
