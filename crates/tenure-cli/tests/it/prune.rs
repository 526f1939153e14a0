//! `tenure prune` deletes events and jobs past their retention, and nothing else.

use crate::program::{everywhere, sqlite};

/// The JSON output when nothing was deleted.
const NOTHING: &str = "{\"published\":0,\"dead\":0,\"jobs\":{\"completed\":0,\"failed\":0}}\n";

#[tokio::test]
async fn events_within_their_retention_stay() {
    for place in everywhere().await {
        place.enqueue("a");
        place.done().await;
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        let pending = place.enqueue("a");
        let output = place.run(&["prune"]).succeeded();
        assert_eq!(output.out, "nothing was past its retention\n");
        assert_eq!(output.err, "");
        let output = place.run(&["prune", "--json"]).succeeded();
        assert_eq!(output.out, NOTHING);
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(
            (stats.field("done"), stats.field("dead")),
            ("1".into(), "1".into())
        );
        place.run(&["show", &pending]).succeeded();
    }
}

#[test]
fn a_short_retention_needs_yes() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    for args in [["prune", "--published", "59m"], ["prune", "--dead", "0s"]] {
        let output = place.run(&args);
        output.failed(2, "expected at least 1h", "--yes");
        place.run(&[&args[..], &["--yes"]].concat()).succeeded();
    }
    place.run(&["prune", "--dead", "1h"]).succeeded();
}

#[tokio::test]
async fn events_past_their_retention_are_deleted_and_pending_ones_stay() {
    for place in everywhere().await {
        place.enqueue_many(1_200).await;
        place.done().await;
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        place.enqueue("a");

        let args = ["prune", "--published", "0s", "--yes"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "deleted 1200 published and 0 dead\n");
        let args = ["prune", "--dead", "0s", "--yes", "--json"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, NOTHING.replace("\"dead\":0", "\"dead\":1"));
        let counts = place.tenure().await.count().await.unwrap();
        assert_eq!((counts.pending(), counts.done, counts.dead), (1, 0, 0));
    }
}

/// Jobs have the same retention as events, and the output counts them by their own states.
#[tokio::test]
async fn deleted_jobs_are_reported_as_jobs() {
    for place in everywhere().await {
        let run = |command: &str| {
            place.run(&["jobs", "enqueue", "import", "{}"]).succeeded();
            let args = [
                "jobs", "run", "--kind", "import", "--drain", "--exec", command,
            ];
            place.run(&args).succeeded();
        };
        run("true");
        run("exit 65");
        let output = place.run(&["prune"]).succeeded();
        assert_eq!(output.out, "nothing was past its retention\n");
        let args = ["prune", "--published", "0s", "--yes"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "deleted 1 completed and 0 failed jobs\n");
        let args = ["prune", "--dead", "0s", "--yes", "--json"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, NOTHING.replace("\"failed\":0", "\"failed\":1"));
        place.run(&["jobs", "list"]).ended(3);
    }
}
