//! `tenure why` explains every situation of an event in one sentence.

use std::time::Duration;

use tenure::Outcome;
use tenure::lease::Settle;

use crate::program::{Finished, Place, everywhere};

/// Returns the code from the JSON output, and the plain output.
#[track_caller]
fn why(place: &Place, id: &str) -> (String, Finished) {
    let details = place.run(&["why", id, "--json"]).succeeded();
    assert_eq!(details.field("id"), id);
    let output = place.run(&["why", id]).succeeded();
    assert_eq!(
        details.field("hint") == "null",
        output.err.is_empty(),
        "{output:?}"
    );
    (details.field("code").trim_matches('"').to_owned(), output)
}

#[tokio::test]
async fn why_explains_a_due_delayed_or_paused_event() {
    for place in everywhere().await {
        let due = place.enqueue("a");
        let (code, output) = why(&place, &due);
        assert_eq!(code, "no_worker");
        assert_eq!(output.out, "it is due, but no worker is running\n");
        assert!(output.err.starts_with("hint: start one: "), "{output:?}");

        let args = ["enqueue", "a", "1", "--delay", "1h", "--json"];
        let held_back = place.run(&args).succeeded().field("id");
        let (code, output) = why(&place, &held_back);
        assert_eq!(code, "delayed");
        let expected = "its producer delayed it: it is due in ";
        assert!(output.out.starts_with(expected), "{output:?}");

        place.run(&["queues", "pause", "default"]).succeeded();
        let (code, output) = why(&place, &due);
        assert_eq!(code, "paused");
        assert_eq!(output.out, "the queue default is paused\n");
        assert_eq!(output.err, "hint: `tenure queues resume default`\n");
    }
}

#[tokio::test]
async fn why_names_the_holder_of_a_claimed_event_and_the_next_attempt_of_a_failed_one() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        let (tenure, held) = place.held().await;
        let (code, output) = why(&place, &id);
        assert_eq!(code, "claimed");
        let expected = format!("{} has been at work on it for ", held.lease.token.holder());
        assert!(output.out.starts_with(&expected), "{output:?}");
        let secret = held.lease.token.expose().rsplit('.').next().unwrap();
        assert!(!output.out.contains(secret), "{output:?}");

        let again = Outcome::Retry {
            after: Duration::from_hours(1),
            error: "the receiver said\n503".to_owned(),
        };
        let settle = Settle::new(held.lease.token.clone()).item(held.ids()[0], again);
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
        let (code, output) = why(&place, &id);
        assert_eq!(code, "backoff");
        let expected = "it failed once (25 are allowed), last with \"the receiver said\\n503\"; \
                        it is retried in ";
        assert!(output.out.starts_with(expected), "{output:?}");
        assert!(
            output.out.ends_with(", and at most for another 5d 7h\n"),
            "{output:?}"
        );
        let few = [
            "--max-retries",
            "2",
            "--retry-base",
            "3h",
            "--retry-cap",
            "3h",
        ];
        place
            .run(&[&["queues", "add", "default"], &few[..]].concat())
            .succeeded();
        let (_, output) = why(&place, &id);
        assert!(
            output.out.starts_with("it failed once (2 are allowed), "),
            "{output:?}"
        );
        // One more retry, after one hour and then up to three.
        let rest = output.out.split_once(", and at most for another 3h 59m");
        assert!(rest.is_some(), "{output:?}");
    }
}

#[tokio::test]
async fn a_lapsed_event_waits_for_a_reaper() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        place.lapsed().await;
        let (code, output) = why(&place, &id);
        assert_eq!(code, "lapsed");
        let expected = "ago, and no worker is running to reap it\n";
        assert!(output.out.ends_with(expected), "{output:?}");
        assert!(output.err.starts_with("hint: `tenure reap`"), "{output:?}");
    }
}

#[tokio::test]
async fn why_explains_a_settled_event_and_how_to_replay_a_dead_one() {
    for place in everywhere().await {
        let published = place.enqueue("a");
        place.done().await;
        let (code, output) = why(&place, &published);
        assert_eq!(code, "published");
        assert!(output.out.starts_with("it was published "), "{output:?}");

        let dead = place.enqueue("a");
        place
            .run(&["bury", &dead, "--reason", "a test"])
            .succeeded();
        let (code, output) = why(&place, &dead);
        assert_eq!(code, "dead");
        let expected = "because an operator buried it: a test\n";
        assert!(output.out.ends_with(expected), "{output:?}");
        let hint = format!("`tenure replay {dead}`");
        assert!(output.err.contains(&hint), "{output:?}");
    }
}

/// Method: a worker holds the head, the head fails, and then the key is paused.
#[tokio::test]
async fn why_explains_the_head_that_an_event_waits_behind() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let (tenure, held) = place.held().await;
        let second = place.enqueue_keyed("customer-7");
        let before = format!("it comes after event {first} of its key \"customer-7\"");
        let (code, output) = why(&place, &second);
        assert_eq!(code, "behind");
        let holder = held.lease.token.holder();
        let expected =
            format!("{before}, which is not done, because {holder} has been at work on it for ");
        assert!(output.out.starts_with(&expected), "{output:?}");

        let again = Outcome::Retry {
            after: Duration::from_hours(1),
            error: "503".to_owned(),
        };
        let settle = Settle::new(held.lease.token.clone()).item(held.ids()[0], again);
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
        let (code, output) = why(&place, &second);
        assert_eq!(code, "behind");
        let expected = format!(
            "{before}, which is not done, because it failed once (25 are allowed), last with \
             \"503\"; it is retried in "
        );
        assert!(output.out.starts_with(&expected), "{output:?}");
        let skip = "`tenure keys skip customer-7 --reason WHY`";
        let hint = format!("{skip} skips event {first}\n");
        assert!(output.err.ends_with(&hint), "{output:?}");

        place.run(&["keys", "pause", "customer-7"]).succeeded();
        for id in [&first, &second] {
            let (code, output) = why(&place, id);
            assert_eq!(code, "key_paused");
            assert!(
                output
                    .out
                    .starts_with("its key \"customer-7\" is paused, for ")
            );
            assert_eq!(output.err, "hint: `tenure keys resume customer-7`\n");
        }
        place.run(&["keys", "resume", "customer-7"]).succeeded();
        assert_eq!(why(&place, &first).0, "backoff");
        assert_eq!(why(&place, &second).0, "behind");
    }
}

#[tokio::test]
async fn why_names_the_dead_event_that_blocks_a_key() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let dead = Outcome::Dead {
            reason: "rejected".to_owned(),
            error: "no such customer".to_owned(),
        };
        place.settled(dead).await;
        let second = place.enqueue_keyed("customer-7");
        // On PostgreSQL, this claim processes the arrival of the new event.
        assert!(place.tenure().await.claim(1).await.unwrap().is_none());
        let (code, output) = why(&place, &second);
        assert_eq!(code, "key_blocked");
        let expected = format!("event {first} of its key \"customer-7\" is dead and blocks it: ");
        assert!(output.out.starts_with(&expected), "{output:?}");
        let (code, output) = why(&place, &first);
        assert_eq!(code, "dead");
        let expected = "; it blocks its key \"customer-7\", and 1 waits behind it\n";
        assert!(output.out.ends_with(expected), "{output:?}");
        assert!(
            output.err.contains(&format!("`tenure replay {first}`")),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn an_unknown_id_gives_exit_code_3() {
    for place in everywhere().await {
        let output = place.run(&["why", "17"]);
        output.failed(3, "there is no event 17", "tenure events");
    }
}
