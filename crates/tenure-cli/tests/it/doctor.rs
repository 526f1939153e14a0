//! `tenure doctor`: its findings, and its exit code for scripts.

use tenure::Outcome;

use crate::program::{Place, everywhere, sqlite};

/// Returns the verdict on a subject. Asserts that it has a hint unless it is good, and that the
/// exit code is 1 if any verdict is bad. The PostgreSQL server of the tests may itself get a bad
/// verdict, because it does not sync to disk.
#[track_caller]
fn verdict(place: &Place, subject: &str) -> String {
    let output = place.run(&["doctor", "--json"]);
    let is_bad = output
        .column("verdict")
        .iter()
        .any(|word| word == "\"bad\"");
    let output = output.ended(i32::from(is_bad));
    let subjects = output.column("subject").into_iter();
    let judged = output
        .column("verdict")
        .into_iter()
        .zip(output.column("hint"));
    let mut findings = subjects.zip(judged);
    let (_, (verdict, hint)) = findings
        .find(|(other, _)| other.trim_matches('"') == subject)
        .expect("a finding on the subject");
    let verdict = verdict.trim_matches('"').to_owned();
    assert_eq!(hint == "null", verdict == "good", "{output:?}");
    verdict
}

#[tokio::test]
async fn the_state_of_the_cluster_is_reported() {
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

        let output = place.run(&["doctor"]);
        for expected in [
            "  1 event\n",
            "  hint: `tenure events --state dead` lists them",
            "  default (1 waiting)\n",
        ] {
            assert!(
                output.out.contains(expected),
                "no {expected:?} in {output:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_lapsed_lease_without_a_reaper_is_bad() {
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
        let output = place.run(&["doctor"]);
        let expected = "a dead event blocks \"customer-7\" (0 behind)";
        assert!(output.out.contains(expected), "{output:?}");
        let args = ["keys", "skip", "customer-7", "--reason", "test", "--yes"];
        place.run(&args).succeeded();
        assert_eq!(verdict(&place, "keys"), "good");
    }
}

/// A blocked key is bad even while it is paused; a paused key without events is not reported.
#[tokio::test]
async fn a_pause_does_not_hide_that_a_key_is_blocked() {
    for place in everywhere().await {
        place.enqueue_keyed("customer-7");
        place
            .settled(Outcome::Dead {
                reason: "rejected".to_owned(),
                error: "no such customer".to_owned(),
            })
            .await;
        place.enqueue_keyed("customer-7");
        place.run(&["keys", "pause", "customer-7"]).succeeded();
        assert_eq!(verdict(&place, "keys"), "bad");
        // The event waits behind a dead head that blocks the key, so a worker would not help.
        assert_eq!(verdict(&place, "due"), "good");
        place.run(&["keys", "pause", "nothing-waits"]).succeeded();
        let output = place.run(&["doctor"]);
        assert!(!output.out.contains("nothing-waits"), "{output:?}");
    }
}

#[test]
fn the_exit_code_is_1_only_if_a_verdict_is_bad() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    let output = place.run(&["doctor"]).succeeded();
    assert!(output.out.contains("good     database"), "{output:?}");
    assert!(output.out.contains("warning  workers"), "{output:?}");
    let args = ["doctor", "--database", "sqlite://absent.db"];
    place.run(&args).ended(1);
}

#[test]
fn a_missing_database_is_a_finding_and_not_created() {
    let place = sqlite();
    assert_eq!(verdict(&place, "database"), "bad");
    let output = place.run(&["doctor"]).ended(1);
    assert!(output.out.contains("there is no database at"), "{output:?}");
    assert!(output.out.contains("hint: `tenure enqueue"), "{output:?}");
    assert_eq!(output.err, "");
    assert!(!place.file().exists());
}

#[test]
fn an_unreachable_database_is_a_finding_without_its_password() {
    let place = sqlite();
    let url = "postgres://app:canary@127.0.0.1:1/shop";
    let output = place.run(&["doctor", "--database", url, "--json"]).ended(1);
    assert_eq!(output.field("subject"), "\"database\"");
    assert_eq!(output.field("verdict"), "\"bad\"");
    assert!(!output.out.contains("canary"), "{output:?}");
    assert!(!output.err.contains("canary"), "{output:?}");
}
