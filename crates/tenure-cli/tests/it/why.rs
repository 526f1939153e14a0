//! `tenure why`: one sentence for every standing that an event can have here.

use std::time::Duration;

use tenure::{Outcome, Settle};

use crate::program::{Place, Said, everywhere};

/// What is said of an event: the word for programs, and what a person reads.
#[track_caller]
fn why(place: &Place, id: &str) -> (String, Said) {
    let shown = place.run(&["why", id, "--json"]).succeeded();
    assert_eq!(shown.field("id"), id);
    let said = place.run(&["why", id]).succeeded();
    assert_eq!(
        shown.field("hint") == "null",
        said.err.is_empty(),
        "{said:?}"
    );
    (shown.field("code").trim_matches('"').to_owned(), said)
}

#[tokio::test]
async fn what_is_due_or_held_back_says_so() {
    for place in everywhere().await {
        let due = place.enqueue("a");
        let (code, said) = why(&place, &due);
        assert_eq!(code, "no_worker");
        assert_eq!(said.out, "it is due, but no worker is here\n");
        assert!(said.err.starts_with("hint: start one: "), "{said:?}");

        let args = ["enqueue", "a", "1", "--delay", "1h", "--json"];
        let held_back = place.run(&args).succeeded().field("id");
        let (code, said) = why(&place, &held_back);
        assert_eq!(code, "delayed");
        let expected = "its producer held it back: it is due in ";
        assert!(said.out.starts_with(expected), "{said:?}");

        place.run(&["queues", "pause", "default"]).succeeded();
        let (code, said) = why(&place, &due);
        assert_eq!(code, "paused");
        assert_eq!(said.out, "the queue default is paused\n");
        assert_eq!(said.err, "hint: `tenure queues resume default`\n");
    }
}

#[tokio::test]
async fn what_is_claimed_says_by_whom_and_what_failed_when_it_is_tried_again() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        let (tenure, held) = place.held().await;
        let (code, said) = why(&place, &id);
        assert_eq!(code, "claimed");
        let expected = format!("{} has been at work on it for ", held.lease.token.holder());
        assert!(said.out.starts_with(&expected), "{said:?}");
        let secret = held.lease.token.expose().rsplit('.').next().unwrap();
        assert!(!said.out.contains(secret), "{said:?}");

        let again = Outcome::Retry {
            after: Duration::from_hours(1),
            error: "the receiver said\n503".to_owned(),
        };
        let settle = Settle::new(held.lease.token.clone()).item(held.ids()[0], again);
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
        let (code, said) = why(&place, &id);
        assert_eq!(code, "backoff");
        let expected = "it failed once (10 are allowed), last with \"the receiver said\\n503\"; \
                        it is tried again in ";
        assert!(said.out.starts_with(expected), "{said:?}");
    }
}

#[tokio::test]
async fn what_lapsed_waits_for_a_reaper() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        place.lapsed().await;
        let (code, said) = why(&place, &id);
        assert_eq!(code, "lapsed");
        let expected = "ago, and no worker is here to reap it\n";
        assert!(said.out.ends_with(expected), "{said:?}");
        assert!(said.err.starts_with("hint: `tenure reap`"), "{said:?}");
    }
}

#[tokio::test]
async fn what_is_settled_says_how_it_comes_back() {
    for place in everywhere().await {
        let published = place.enqueue("a");
        place.done().await;
        let (code, said) = why(&place, &published);
        assert_eq!(code, "published");
        assert!(said.out.starts_with("it was published "), "{said:?}");

        let dead = place.enqueue("a");
        place
            .run(&["bury", &dead, "--reason", "a test"])
            .succeeded();
        let (code, said) = why(&place, &dead);
        assert_eq!(code, "dead");
        let expected = "because an operator buried it: a test\n";
        assert!(said.out.ends_with(expected), "{said:?}");
        let hint = format!("`tenure replay {dead}`");
        assert!(said.err.contains(&hint), "{said:?}");
    }
}

/// Goal: an event that waits for another of its key names it, whatever keeps that one. Method: the
/// head is held, fails, is paused, dies and blocks.
#[tokio::test]
async fn what_is_behind_another_of_its_key_says_why_that_one_is_not_done() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let (tenure, held) = place.held().await;
        let second = place.enqueue_keyed("customer-7");
        let before = format!("it comes after event {first} of its key \"customer-7\"");
        let (code, said) = why(&place, &second);
        assert_eq!(code, "behind");
        let holder = held.lease.token.holder();
        let expected =
            format!("{before}, which is not done, because {holder} has been at work on it for ");
        assert!(said.out.starts_with(&expected), "{said:?}");

        let again = Outcome::Retry {
            after: Duration::from_hours(1),
            error: "503".to_owned(),
        };
        let settle = Settle::new(held.lease.token.clone()).item(held.ids()[0], again);
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
        let (code, said) = why(&place, &second);
        assert_eq!(code, "behind");
        let expected = format!(
            "{before}, which is not done, because it failed once (10 are allowed), last with \
             \"503\"; it is tried again in "
        );
        assert!(said.out.starts_with(&expected), "{said:?}");
        let skip = "`tenure domains skip customer-7 --reason WHY`";
        let hint = format!("{skip} goes on without event {first}\n");
        assert!(said.err.ends_with(&hint), "{said:?}");

        place.run(&["domains", "pause", "customer-7"]).succeeded();
        for id in [&first, &second] {
            let (code, said) = why(&place, id);
            assert_eq!(code, "key_paused");
            assert!(
                said.out
                    .starts_with("its key \"customer-7\" is paused, for ")
            );
            assert_eq!(said.err, "hint: `tenure domains resume customer-7`\n");
        }
        place.run(&["domains", "resume", "customer-7"]).succeeded();
        assert_eq!(why(&place, &first).0, "backoff");
        assert_eq!(why(&place, &second).0, "behind");
    }
}

#[tokio::test]
async fn a_dead_event_that_blocks_its_key_says_so_and_those_behind_it_too() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let dead = Outcome::Dead {
            reason: "rejected".to_owned(),
            error: "no such customer".to_owned(),
        };
        place.settled(dead).await;
        let second = place.enqueue_keyed("customer-7");
        // A claim finds it its place.
        assert!(place.tenure().await.claim(1).await.unwrap().is_none());
        let (code, said) = why(&place, &second);
        assert_eq!(code, "key_blocked");
        let expected = format!("event {first} of its key \"customer-7\" is dead and blocks it: ");
        assert!(said.out.starts_with(&expected), "{said:?}");
        let (code, said) = why(&place, &first);
        assert_eq!(code, "dead");
        let expected = "; it blocks its key \"customer-7\", and 1 waits behind it\n";
        assert!(said.out.ends_with(expected), "{said:?}");
        assert!(
            said.err.contains(&format!("`tenure replay {first}`")),
            "{said:?}"
        );
    }
}

#[tokio::test]
async fn an_unknown_id_ends_with_3() {
    for place in everywhere().await {
        let said = place.run(&["why", "17"]);
        said.failed(3, "there is no event 17", "tenure events");
    }
}
