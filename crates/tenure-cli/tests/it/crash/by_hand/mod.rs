//! Workers that an application wrote by hand, with the statements of the specifications letter by
//! letter, beside workers of ours: on tables that were adopted, and on our own jobs and
//! checkpoints. Both are killed with -9 in the middle of a row.
//!
//! Each worker notes in one file when it begins and ends something. A worker is stopped when the
//! file says that it has begun and not ended, and killed if that is still so: every kill costs a
//! lease.

mod ended;
mod history;
mod scene;
mod side;
mod statements;
mod storm;
mod worker;

use scene::Scene;
use storm::{KILLS, Storm};

use crate::program::{Place, postgres, sqlite};

/// Nothing is at two at once, lost, stuck or ended anew, and no kill was in vain.
async fn harmed(scene: Scene, place: Place) {
    let mut storm = Storm::begin(scene, &place).await;
    storm.rage().await;
    let (violations, summary) = storm.finish().await;
    assert_eq!(violations, [], "{summary:?}");
    storm.expect_ends();
    assert_eq!(
        (summary.kills, summary.bites),
        (KILLS, KILLS),
        "{summary:?}"
    );
    assert_eq!(summary.again, summary.broken, "{summary:?}");
    // Both took part. How much each gets is the database's affair: SQLite has no line for writers.
    let least = KILLS / 2;
    assert!(summary.by_hand >= least, "{summary:?}");
    assert!(summary.by_us >= least, "{summary:?}");
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

/// The run itself, not only what it reads in the end, shows what must not be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_take_what_others_hold_and_ends_that_change_are_noticed() {
    let place = sqlite();
    let mut storm = Storm::begin(Scene::careless(), &place).await;
    storm.plant().await;
    let violations = storm.finish().await.0;
    for name in ["Twice", "Changed", "Undone"] {
        let is_seen = violations.iter().any(|violation| violation.name() == name);
        assert!(is_seen, "{name} is not seen in {violations:?}");
    }
}
