//! `tenure doctor`: tells what is bad, and says so to scripts by its exit code.

use crate::program::{Place, everywhere, sqlite};

/// The verdict on a subject. What is not good has a hint.
#[track_caller]
fn verdict(place: &Place, code: i32, subject: &str) -> String {
    let said = place.run(&["doctor", "--json"]).ended(code);
    let subjects = said.column("subject").into_iter();
    let judged = said.column("verdict").into_iter().zip(said.column("hint"));
    let mut findings = subjects.zip(judged);
    let (_, (verdict, hint)) = findings
        .find(|(found, _)| found.trim_matches('"') == subject)
        .expect("the subject is looked at");
    let verdict = verdict.trim_matches('"').to_owned();
    assert_eq!(hint == "null", verdict == "good", "{said:?}");
    verdict
}

#[tokio::test]
async fn what_stands_is_told_and_nothing_bad_ends_with_0() {
    for place in everywhere().await {
        assert_eq!(verdict(&place, 0, "database"), "good");
        assert_eq!(verdict(&place, 0, "workers"), "warning");
        assert_eq!(verdict(&place, 0, "leases"), "good");
        assert_eq!(verdict(&place, 0, "dead"), "good");

        let id = place.enqueue("a");
        place.run(&["bury", &id, "--reason", "test"]).succeeded();
        assert_eq!(verdict(&place, 0, "dead"), "warning");

        place.enqueue("a");
        place.run(&["queues", "pause", "default"]).succeeded();
        assert_eq!(verdict(&place, 0, "paused"), "warning");

        let said = place.run(&["doctor"]).succeeded();
        for expected in [
            "warning  dead      1 event\n",
            "hint: `tenure events --state dead` lists them",
            "warning  paused    default (1 wait)\n",
        ] {
            assert!(said.out.contains(expected), "no {expected:?} in {said:?}");
        }
    }
}

#[tokio::test]
async fn a_lapsed_lease_that_nobody_reaps_is_bad() {
    for place in everywhere().await {
        place.enqueue("a");
        place.lapsed().await;
        assert_eq!(verdict(&place, 1, "leases"), "bad");
        place.run(&["reap"]).succeeded();
        assert_eq!(verdict(&place, 0, "leases"), "good");
    }
}

#[test]
fn a_database_that_is_not_there_is_a_finding_and_not_made() {
    let place = sqlite();
    assert_eq!(verdict(&place, 1, "database"), "bad");
    let said = place.run(&["doctor"]).ended(1);
    assert!(said.out.contains("there is no database at"), "{said:?}");
    assert!(said.out.contains("hint: `tenure enqueue"), "{said:?}");
    assert_eq!(said.err, "");
    assert!(!place.file().exists());
}

#[test]
fn a_database_that_is_away_is_a_finding_without_its_password() {
    let place = sqlite();
    let url = "postgres://app:canary@127.0.0.1:1/shop";
    let said = place.run(&["doctor", "--database", url, "--json"]).ended(1);
    assert_eq!(said.field("subject"), "\"database\"");
    assert_eq!(said.field("verdict"), "\"bad\"");
    assert!(!said.out.contains("canary"), "{said:?}");
    assert!(!said.err.contains("canary"), "{said:?}");
}
