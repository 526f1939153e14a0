//! `tenure settings` changes the settings of all workers atomically.

use std::fs;

use crate::program::{Place, everywhere};

/// Returns the value in force of a setting, and its source.
fn in_force(place: &Place, name: &str) -> (String, String) {
    let output = place.run(&["settings", "get", name, "--json"]).succeeded();
    let text = |field| output.field(field).trim_matches('"').to_owned();
    (text("value"), text("from"))
}

/// An expected result of `in_force`.
fn value(value: &str, from: &str) -> (String, String) {
    (value.to_owned(), from.to_owned())
}

/// Proves: S1-012
#[tokio::test]
async fn a_setting_applies_to_the_cluster_and_unset_ones_follow_from_it() {
    for place in everywhere().await {
        assert_eq!(in_force(&place, "lease.term"), value("30s", "default"));
        let output = place
            .run(&["settings", "set", "lease.term=60s", "worker.batch=200"])
            .succeeded();
        insta::assert_snapshot!("set_two", output.out);
        assert!(output.err.contains("within seconds"), "{output:?}");
        assert_eq!(in_force(&place, "lease.term"), value("1m", "cluster"));
        assert_eq!(in_force(&place, "lease.heartbeat"), value("15s", "follows"));
        assert_eq!(in_force(&place, "worker.batch"), value("200", "cluster"));

        // A second change does not undo the first.
        let output = place.run(&["settings", "set", "lease.heartbeat=19s", "--json"]);
        assert_eq!(output.succeeded().field("old"), "\"15s\"");
        assert_eq!(in_force(&place, "lease.term"), value("1m", "cluster"));
        assert_eq!(in_force(&place, "lease.heartbeat"), value("19s", "cluster"));
    }
}

/// Proves: S1-019, S2-033
#[tokio::test]
async fn a_bad_change_is_refused_whole_with_every_problem() {
    for place in everywhere().await {
        let before = place.run(&["settings", "--json"]).succeeded().out;
        let output = place
            .run(&[
                "settings",
                "set",
                "worker.concurrency=20",
                "lease.heartbeat=10s",
                "worker.batch=0",
            ])
            .failed(2, "lease.heartbeat is 10s; expected", "nothing was changed");
        insta::assert_snapshot!("refused_whole", output.err);
        place
            .run(&["settings", "set", "worker.batch=5", "lease.trem=60s"])
            .failed(2, "there is no setting \"lease.trem\"", "lease.term");
        assert_eq!(place.run(&["settings", "--json"]).succeeded().out, before);
    }
}

#[tokio::test]
async fn default_removes_a_value_of_the_cluster() {
    for place in everywhere().await {
        place
            .run(&["settings", "set", "lease.term=60s", "lease.heartbeat=19s"])
            .succeeded();
        // This change alone would leave a heartbeat interval that is too long for the term.
        place
            .run(&["settings", "set", "lease.term=default"])
            .failed(2, "lease.heartbeat is 19s", "change both at once");
        place
            .run(&[
                "settings",
                "set",
                "lease.term=default",
                "lease.heartbeat=default",
            ])
            .succeeded();
        assert_eq!(in_force(&place, "lease.term"), value("30s", "default"));
        assert_eq!(
            in_force(&place, "lease.heartbeat"),
            value("7s 500ms", "follows")
        );
    }
}

#[tokio::test]
async fn the_cluster_overrides_the_file_of_a_process() {
    for place in everywhere().await {
        let file = place.file().with_file_name("tenure.toml");
        fs::write(file, "[lease]\nterm = \"40s\"\n[worker]\nbatch = 7\n").unwrap();
        assert_eq!(in_force(&place, "lease.term"), value("40s", "file"));
        place
            .run(&["settings", "set", "lease.term=50s"])
            .succeeded();
        assert_eq!(in_force(&place, "lease.term"), value("50s", "cluster"));
        assert_eq!(in_force(&place, "worker.batch"), value("7", "file"));
        assert_eq!(in_force(&place, "database").1, "environment");
        let output = place.run(&["settings", "get", "lease.term", "worker.batch"]);
        insta::assert_snapshot!("the_table", output.succeeded().out);
    }
}

/// Goal: no concurrent change is lost. Method: one process per setting, all at the same time. A
/// process whose change conflicts with that of another reads and checks the settings again.
#[tokio::test]
async fn concurrent_changes_are_all_stored() {
    let changes = [
        "lease.term=60s",
        "worker.batch=200",
        "worker.concurrency=20",
        "retry.max_retries=3",
        "retry.max_crashes=4",
        "retention.dead=36h",
    ];
    for place in everywhere().await {
        std::thread::scope(|scope| {
            for change in changes {
                let place = &place;
                scope.spawn(move || place.run(&["settings", "set", change]).succeeded());
            }
        });
        for change in changes {
            let (name, text) = change.split_once('=').unwrap();
            let text = if text == "60s" { "1m" } else { text };
            assert_eq!(in_force(&place, name), value(text, "cluster"));
        }
    }
}
