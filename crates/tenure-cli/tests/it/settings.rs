//! `tenure settings`: one set for all workers, changed whole or not at all.

use std::fs;

use crate::program::{Place, everywhere};

/// The value in force of a setting, and where it comes from.
fn in_force(place: &Place, name: &str) -> (String, String) {
    let said = place.run(&["settings", "get", name, "--json"]).succeeded();
    let text = |field| said.field(field).trim_matches('"').to_owned();
    (text("value"), text("from"))
}

/// As `in_force` answers.
fn value(value: &str, from: &str) -> (String, String) {
    (value.to_owned(), from.to_owned())
}

/// Proves: S1-012
#[tokio::test]
async fn what_is_set_is_set_for_all_and_what_is_not_set_follows() {
    for place in everywhere().await {
        assert_eq!(in_force(&place, "lease.term"), value("30s", "default"));
        let said = place
            .run(&["settings", "set", "lease.term=60s", "worker.batch=200"])
            .succeeded();
        insta::assert_snapshot!("set_two", said.out);
        assert!(said.err.contains("within seconds"), "{said:?}");
        assert_eq!(in_force(&place, "lease.term"), value("1m", "cluster"));
        assert_eq!(in_force(&place, "lease.heartbeat"), value("15s", "follows"));
        assert_eq!(in_force(&place, "worker.batch"), value("200", "cluster"));

        // A second change keeps what the first one set.
        let said = place.run(&["settings", "set", "lease.heartbeat=19s", "--json"]);
        assert_eq!(said.succeeded().field("old"), "\"15s\"");
        assert_eq!(in_force(&place, "lease.term"), value("1m", "cluster"));
        assert_eq!(in_force(&place, "lease.heartbeat"), value("19s", "cluster"));
    }
}

/// Proves: S1-019, S2-033
#[tokio::test]
async fn a_bad_set_is_refused_whole_with_every_problem() {
    for place in everywhere().await {
        let before = place.run(&["settings", "--json"]).succeeded().out;
        let said = place
            .run(&[
                "settings",
                "set",
                "worker.concurrency=20",
                "lease.heartbeat=10s",
                "worker.batch=0",
            ])
            .failed(2, "lease.heartbeat is 10s; expected", "nothing was changed");
        insta::assert_snapshot!("refused_whole", said.err);
        place
            .run(&["settings", "set", "worker.batch=5", "lease.trem=60s"])
            .failed(2, "there is no setting \"lease.trem\"", "lease.term");
        assert_eq!(place.run(&["settings", "--json"]).succeeded().out, before);
    }
}

#[tokio::test]
async fn default_takes_a_value_out_of_the_set() {
    for place in everywhere().await {
        place
            .run(&["settings", "set", "lease.term=60s", "lease.heartbeat=19s"])
            .succeeded();
        // Alone it would leave a heartbeat that is too slow for the term.
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
async fn the_cluster_stands_over_the_file_of_a_process() {
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
        let said = place.run(&["settings", "get", "lease.term", "worker.batch"]);
        insta::assert_snapshot!("the_table", said.succeeded().out);
    }
}

/// Goal: changes that meet are all kept. Method: one process per setting, all at once; whoever was
/// overtaken looks and judges again.
#[tokio::test]
async fn changes_at_the_same_time_are_all_kept() {
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
