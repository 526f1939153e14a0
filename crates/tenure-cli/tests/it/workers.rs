//! `tenure workers`: the workers of a cluster and their presence.

use std::time::Duration;

use tenure::lease::WorkerId;
use tenure::operate::WorkerReport;
use tenure::publish::TopicSet;

use crate::program::{everywhere, soon, sqlite};

#[tokio::test]
async fn without_a_worker_the_exit_code_is_3() {
    for place in everywhere().await {
        for args in [&["workers"][..], &["workers", "--all"]] {
            let output = place.run(args).ended(3);
            assert_eq!(output.out, "");
            assert!(output.err.starts_with("no workers: "), "{output:?}");
        }
        let output = place.run(&["workers", "--json"]).ended(3);
        assert_eq!((output.out.as_str(), output.err.as_str()), ("", ""));
    }
}

#[test]
fn a_missing_database_is_reported_and_not_created() {
    let place = sqlite();
    place
        .run(&["workers"])
        .failed(3, "there is no database", "");
    assert!(!place.file().exists());
}

/// The report of an active worker.
fn report(name: &str, queues: &str, next: Duration) -> WorkerReport {
    WorkerReport {
        worker: WorkerId::new(name, 7).expect("a name"),
        host: "db-1".to_owned(),
        pid: 4_242,
        version: "0.1.0".to_owned(),
        queues: queues.to_owned(),
        topics: TopicSet::any(),
        concurrency: 10,
        running: 3,
        held: 12,
        settings_version: 0,
        next_within: next,
    }
}

/// Goal: the list distinguishes active, missing and stopped workers, and `why` counts only active
/// workers that serve the queue of the event. Method: the test reports workers through the store's
/// port, as engines do.
#[tokio::test]
async fn workers_are_listed_with_their_presence() {
    for place in everywhere().await {
        let tenure = place.tenure().await;
        let store = tenure.store();
        let minute = Duration::from_mins(1);
        let missing = report("missing", "", Duration::from_millis(1));
        store.report(&missing, None).await.unwrap();
        let gone = report("gone", "mail", minute);
        store.report(&gone, None).await.unwrap();
        store.leave(&gone.worker, None).await.unwrap();
        let mut active = report("active", "mail, audit", minute);
        active.topics = TopicSet::parse("a, b, c, d, e");
        store.report(&active, None).await.unwrap();

        let presence = async |name: &str| {
            let output = place.run(&["workers", "--json"]).succeeded();
            let all = output
                .column("worker")
                .into_iter()
                .zip(output.column("presence"));
            let mut named = all.filter(|(worker, _)| worker.starts_with(&format!("\"{name}-")));
            named.next().map(|(_, presence)| presence)
        };
        soon(async || (presence("missing").await? == "\"missing\"").then_some(())).await;
        assert_eq!(presence("active").await.unwrap(), "\"active\"");
        assert_eq!(presence("gone").await.unwrap(), "\"stopped\"");
        let output = place.run(&["workers"]).succeeded();
        assert!(
            output
                .out
                .contains("db-1  4242  0.1.0    mail, audit  a, b, c and 2 more  "),
            "{output:?}"
        );
        assert!(output.out.contains("3/10    12  "), "{output:?}");
        // The list does not print the last report of a stopped or missing worker, because it is out
        // of date.
        let busy = output.out.lines().filter(|line| line.contains("3/10"));
        assert_eq!(busy.count(), 1, "{output:?}");
        let output = place.run(&["workers", "--json"]).succeeded();
        for (field, value) in [("running", "3"), ("held", "12")] {
            let mut column = output.column(field);
            column.sort();
            assert_eq!(column, [value, "null", "null"]);
        }

        let id = place.enqueue("a");
        let why = place.run(&["why", &id, "--json"]).succeeded();
        assert_eq!(why.field("code"), "\"unserved\"");
        let doctor = place.run(&["doctor"]).ended(1);
        for expected in [
            "no active worker serves default (1 due)",
            "no longer reporting: missing-",
            "1 active",
        ] {
            assert!(
                doctor.out.contains(expected),
                "no {expected:?} in {doctor:?}"
            );
        }
        store
            .report(&report("active", "", minute), None)
            .await
            .unwrap();
        let why = place.run(&["why", &id, "--json"]).succeeded();
        assert_eq!(why.field("code"), "\"waiting\"");
    }
}
