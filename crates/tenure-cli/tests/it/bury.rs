//! `tenure bury` settles an event as dead, and the settle of its holder is refused.

use tenure::lease::{Refusal, Settle};

use crate::program::{everywhere, sqlite};

/// Proves: S4-042
#[tokio::test]
async fn an_event_is_buried_even_if_a_worker_holds_it() {
    for place in everywhere().await {
        place.enqueue("a");
        let (tenure, held) = place.held().await;
        let waiting = place.enqueue("a");
        let output = place
            .run(&["bury", "1", &waiting, "--reason", "a test order"])
            .succeeded();
        assert_eq!(output.out, format!("buried 1\nburied {waiting}\n"));

        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        let answer = tenure.settle(&settle).await.unwrap();
        let refused: Vec<_> = answer.refused().map(|(_, why)| why).collect();
        assert_eq!(refused, [Refusal::AlreadySettled]);

        let details = place
            .run(&["show", &waiting, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        assert_eq!(details["state"], "dead");
        assert_eq!(details["dead_reason"], "buried");
        assert_eq!(details["last_error"], "a test order");
        let holder = details["timeline"][0]["holder"].as_str().unwrap();
        assert!(holder.starts_with("operator-"), "{holder}");
    }
}

#[tokio::test]
async fn a_settled_event_cannot_be_buried() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let output = place
            .run(&["bury", &done, "--reason", "test", "--json"])
            .ended(4);
        let expected =
            format!("{{\"id\":{done},\"accepted\":false,\"refused\":\"already_settled\"}}\n");
        assert_eq!(output.out, expected);
        let details = place.run(&["show", &done, "--json"]).succeeded();
        assert_eq!(details.field("state"), "\"done\"");
        place.run(&["bury", "99", "--reason", "test"]).ended(3);
    }
}

#[test]
fn a_bury_without_a_reason_is_refused() {
    let output = sqlite().run(&["bury", "1", "--reason", ""]).ended(2);
    assert!(output.err.contains("--reason"), "{output:?}");
}
