//! A hand-written claim of a chunk checks only the lease; a chunk that Tenure completed stays
//! completed.

use super::scene::{PART_MATRIX, Scene, part_hash};
use super::side::Side;
use super::statements::OF_CHUNKS;
use crate::program::{Place, everywhere};

const AT: &str = "select cast(completed_at as text) from";

fn values<'a>(matrix: &'a str, hash: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("$worker_id", "'hand-1'"),
        ("$matrix_id", matrix),
        ("$chunk_hash", hash),
        ("$hash", hash),
        ("$rows", "5"),
    ]
}

/// An adopted table does not prevent a claim by hand: the work is repeated, but the chunk stays
/// completed.
///
/// Proves: S5-008, S5-036
#[tokio::test]
async fn a_completed_chunk_of_an_adopted_table_stays_completed_after_a_claim_by_hand() {
    for place in everywhere().await {
        let (scene, side) = (Scene::sync_checkpoints(), Side::open(&place.url).await);
        scene.make(&side).await;
        scene.fill(&side, 0, 1).await;
        scene.adopt(&place);
        let work = [
            "work",
            "--table",
            "sync_checkpoints",
            "--exec",
            "true",
            "--drain",
        ];
        place.run(&work).succeeded();
        let ask = format!("{AT} sync_checkpoints where completed_at is not null");
        let at = side.lines(&ask).await;
        assert_eq!(at.len(), 1);
        let [matrix, hash] = [PART_MATRIX, &part_hash("1")].map(|name| format!("'{name}'"));
        let values = values(&matrix, &hash);
        let claimed = side.keys(OF_CHUNKS.claim, &values).await;
        assert_eq!(claimed, Ok(vec![1]));
        assert_eq!(side.lines(&ask).await, at);
        // Tenure's workers do not claim the chunk, neither while it is held nor after its release.
        place.run(&work).succeeded();
        assert_eq!(side.change(OF_CHUNKS.complete, &values).await, Ok(1));
        place.run(&work).succeeded();
        assert_eq!(side.lines(&ask).await, at);
    }
}

/// A check constraint of Tenure's own table refuses a claim by hand.
///
/// Proves: S5-008
#[tokio::test]
async fn a_completed_chunk_of_tenures_own_table_cannot_be_claimed_by_hand() {
    for place in everywhere().await {
        let side = Side::open(&place.url).await;
        let program = env!("CARGO_BIN_EXE_tenure");
        let command = format!(
            "{program} jobs chunk claim c && {program} jobs chunk done c --rows 7 || exit 65"
        );
        enqueued(&place);
        let run = [
            "jobs", "run", "--kind", "sync", "--drain", "--exec", &command,
        ];
        place.run(&run).succeeded();
        let ask = format!("{AT} tenure_checkpoints where completed_at is not null");
        let at = side.lines(&ask).await;
        assert_eq!(at.len(), 1);
        let renamed = Scene::own().renamed;
        let values = [renamed, &values("'m'", "'c'")].concat();
        let refused = side.keys(OF_CHUNKS.claim, &values).await.unwrap_err();
        assert!(
            refused.to_lowercase().contains("check constraint"),
            "{refused}"
        );
        assert_eq!(side.lines(&ask).await, at);
    }
}

fn enqueued(place: &Place) {
    let args = ["jobs", "enqueue", "sync", "{}", "--matrix", "m"];
    place.run(&args).succeeded();
}
