//! `tenure workers`: who is here.

use std::time::Duration;

use tenure::{WorkerId, WorkerReport};

use crate::program::{everywhere, soon, sqlite};

#[tokio::test]
async fn without_a_worker_it_ends_with_3() {
    for place in everywhere().await {
        for args in [&["workers"][..], &["workers", "--all"]] {
            let said = place.run(args).ended(3);
            assert_eq!(said.out, "");
            assert!(said.err.starts_with("no workers: "), "{said:?}");
        }
        let said = place.run(&["workers", "--json"]).ended(3);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    }
}

#[test]
fn without_a_database_it_says_so_and_makes_none() {
    let place = sqlite();
    place
        .run(&["workers"])
        .failed(3, "there is no database", "");
    assert!(!place.file().exists());
}

/// Goal: who is here, silent or gone is told apart, and an event says who could work on it.
/// Method: workers report by the store's own port, as engines do.
#[tokio::test]
async fn workers_are_listed_as_they_stand() {
    for place in everywhere().await {
        let tenure = place.tenure().await;
        let store = tenure.store();
        let report = |name: &str, queues: &str, next: Duration| WorkerReport {
            worker: WorkerId::new(name, 7).unwrap(),
            host: "db-1".to_owned(),
            pid: 4_242,
            version: "0.1.0".to_owned(),
            queues: queues.to_owned(),
            concurrency: 10,
            running: 3,
            held: 12,
            settings_version: 0,
            next_within: next,
        };
        let minute = Duration::from_mins(1);
        let silent = report("silent", "", Duration::from_millis(1));
        store.report(&silent, None).await.unwrap();
        let gone = report("gone", "mail", minute);
        store.report(&gone, None).await.unwrap();
        store.leave(&gone.worker, None).await.unwrap();
        let here = report("here", "mail, audit", minute);
        store.report(&here, None).await.unwrap();

        let presence = async |name: &str| {
            let said = place.run(&["workers", "--json"]).succeeded();
            let all = said
                .column("worker")
                .into_iter()
                .zip(said.column("presence"));
            let mut named = all.filter(|(worker, _)| worker.starts_with(&format!("\"{name}-")));
            named.next().map(|(_, presence)| presence)
        };
        soon(async || (presence("silent").await? == "\"silent\"").then_some(())).await;
        assert_eq!(presence("here").await.unwrap(), "\"here\"");
        assert_eq!(presence("gone").await.unwrap(), "\"left\"");
        let said = place.run(&["workers"]).succeeded();
        assert!(
            said.out.contains("db-1  4242  0.1.0    mail, audit"),
            "{said:?}"
        );
        assert!(said.out.contains("3/10    12  "), "{said:?}");
        // What one that is gone or silent said last is no longer so.
        let busy = said.out.lines().filter(|line| line.contains("3/10"));
        assert_eq!(busy.count(), 1, "{said:?}");
        let said = place.run(&["workers", "--json"]).succeeded();
        for (field, told) in [("running", "3"), ("held", "12")] {
            let mut column = said.column(field);
            column.sort();
            assert_eq!(column, [told, "null", "null"]);
        }

        let id = place.enqueue("a");
        let why = place.run(&["why", &id, "--json"]).succeeded();
        assert_eq!(why.field("code"), "\"unserved\"");
        let doctor = place.run(&["doctor"]).ended(1);
        for expected in [
            "no worker here serves default (1 due)",
            "no longer reports: silent-",
            "1 is here",
        ] {
            assert!(
                doctor.out.contains(expected),
                "no {expected:?} in {doctor:?}"
            );
        }
        store
            .report(&report("here", "", minute), None)
            .await
            .unwrap();
        let why = place.run(&["why", &id, "--json"]).succeeded();
        assert_eq!(why.field("code"), "\"waiting\"");
    }
}
