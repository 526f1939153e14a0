//! `tenure prune`: what is past its retention goes, and nothing by a slip.

use crate::program::{everywhere, sqlite};

/// What is said where nothing was deleted.
const NOTHING: &str = "{\"published\":0,\"dead\":0,\"jobs\":{\"completed\":0,\"failed\":0}}\n";

#[tokio::test]
async fn what_is_within_its_retention_is_kept() {
    for place in everywhere().await {
        place.enqueue("a");
        place.done().await;
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        let pending = place.enqueue("a");
        let said = place.run(&["prune"]).succeeded();
        assert_eq!(said.out, "nothing was past its retention\n");
        assert_eq!(said.err, "");
        let said = place.run(&["prune", "--json"]).succeeded();
        assert_eq!(said.out, NOTHING);
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(
            (stats.field("done"), stats.field("dead")),
            ("1".into(), "1".into())
        );
        place.run(&["show", &pending]).succeeded();
    }
}

#[test]
fn a_short_retention_must_be_meant() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    for args in [["prune", "--published", "59m"], ["prune", "--dead", "0s"]] {
        let said = place.run(&args);
        said.failed(2, "expected at least 1h", "--yes");
        place.run(&[&args[..], &["--yes"]].concat()).succeeded();
    }
    place.run(&["prune", "--dead", "1h"]).succeeded();
}

#[tokio::test]
async fn what_is_past_its_retention_goes_and_what_waits_stays() {
    for place in everywhere().await {
        place.enqueue_many(1_200).await;
        place.done().await;
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        place.enqueue("a");

        let args = ["prune", "--published", "0s", "--yes"];
        let said = place.run(&args).succeeded();
        assert_eq!(said.out, "deleted 1200 published and 0 dead\n");
        let args = ["prune", "--dead", "0s", "--yes", "--json"];
        let said = place.run(&args).succeeded();
        assert_eq!(said.out, NOTHING.replace("\"dead\":0", "\"dead\":1"));
        let counts = place.tenure().await.count().await.unwrap();
        assert_eq!((counts.pending(), counts.done, counts.dead), (1, 0, 0));
    }
}

/// Jobs go by the same retention, and are told in their own words.
#[tokio::test]
async fn jobs_that_went_are_told_as_jobs() {
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
        let said = place.run(&["prune"]).succeeded();
        assert_eq!(said.out, "nothing was past its retention\n");
        let args = ["prune", "--published", "0s", "--yes"];
        let said = place.run(&args).succeeded();
        assert_eq!(said.out, "deleted 1 completed and 0 failed jobs\n");
        let args = ["prune", "--dead", "0s", "--yes", "--json"];
        let said = place.run(&args).succeeded();
        assert_eq!(said.out, NOTHING.replace("\"failed\":0", "\"failed\":1"));
        place.run(&["jobs", "list"]).ended(3);
    }
}
