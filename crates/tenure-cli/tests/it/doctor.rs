//! `tenure doctor`: tells what is bad, and says so to scripts by its exit code.

use tenure::Outcome;

use crate::program::{Place, everywhere, sqlite};

/// The verdict on a subject. What is not good has a hint, and one bad thing makes the exit code 1.
/// The throw-away PostgreSQL may have such a thing of its own: it does not wait for its disk.
#[track_caller]
fn verdict(place: &Place, subject: &str) -> String {
    let said = place.run(&["doctor", "--json"]);
    let is_bad = said.column("verdict").iter().any(|word| word == "\"bad\"");
    let said = said.ended(i32::from(is_bad));
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
async fn what_stands_is_told() {
    for place in everywhere().await {
        assert_eq!(verdict(&place, "database"), "good");
        assert_eq!(verdict(&place, "workers"), "warning");
        assert_eq!(verdict(&place, "leases"), "good");
        assert_eq!(verdict(&place, "dead"), "good");

        let id = place.enqueue("a");
        place.run(&["bury", &id, "--reason", "test"]).succeeded();
        assert_eq!(verdict(&place, "dead"), "warning");

        place.enqueue("a");
        place.run(&["queues", "pause", "default"]).succeeded();
        assert_eq!(verdict(&place, "paused"), "warning");

        let said = place.run(&["doctor"]);
        for expected in [
            "  1 event\n",
            "  hint: `tenure events --state dead` lists them",
            "  default (1 waits)\n",
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
        assert_eq!(verdict(&place, "leases"), "bad");
        place.run(&["reap"]).succeeded();
        assert_eq!(verdict(&place, "leases"), "good");
    }
}

#[tokio::test]
async fn a_key_that_a_dead_event_blocks_is_bad() {
    for place in everywhere().await {
        assert_eq!(verdict(&place, "keys"), "good");
        place.enqueue_keyed("customer-7");
        let dead = Outcome::Dead {
            reason: "rejected".to_owned(),
            error: "no such customer".to_owned(),
        };
        place.settled(dead).await;
        assert_eq!(verdict(&place, "keys"), "bad");
        let said = place.run(&["doctor"]);
        let expected = "a dead event blocks \"customer-7\" (0 behind)";
        assert!(said.out.contains(expected), "{said:?}");
        let args = ["domains", "skip", "customer-7", "--reason", "test", "--yes"];
        place.run(&args).succeeded();
        assert_eq!(verdict(&place, "keys"), "good");
    }
}

/// Goal: what an operator holds back on purpose does not hide what needs him.
#[tokio::test]
async fn keys_that_are_paused_hide_no_key_that_is_blocked() {
    for place in everywhere().await {
        place.enqueue_keyed("customer-7");
        place
            .settled(Outcome::Dead {
                reason: "rejected".to_owned(),
                error: "no such customer".to_owned(),
            })
            .await;
        place.enqueue_keyed("customer-7");
        place.run(&["domains", "pause", "customer-7"]).succeeded();
        assert_eq!(verdict(&place, "keys"), "bad");
        // No worker would help the one behind it.
        assert_eq!(verdict(&place, "due"), "good");
        place
            .run(&["domains", "pause", "nothing-waits"])
            .succeeded();
        let said = place.run(&["doctor"]);
        assert!(!said.out.contains("nothing-waits"), "{said:?}");
    }
}

#[test]
fn nothing_bad_ends_with_0_and_something_bad_with_1() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    let said = place.run(&["doctor"]).succeeded();
    assert!(said.out.contains("good     database"), "{said:?}");
    assert!(said.out.contains("warning  workers"), "{said:?}");
    let args = ["doctor", "--database", "sqlite://absent.db"];
    place.run(&args).ended(1);
}

#[test]
fn a_database_that_is_not_there_is_a_finding_and_not_made() {
    let place = sqlite();
    assert_eq!(verdict(&place, "database"), "bad");
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
