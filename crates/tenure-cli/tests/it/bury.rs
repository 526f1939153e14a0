//! `tenure bury`: an event is settled dead, and its holder is refused.

use tenure::{Refusal, Settle};

use crate::program::{everywhere, sqlite};

/// Proves: S4-042
#[tokio::test]
async fn an_event_is_buried_whoever_holds_it() {
    for place in everywhere().await {
        place.enqueue("a");
        let (tenure, held) = place.held().await;
        let waiting = place.enqueue("a");
        let said = place
            .run(&["bury", "1", &waiting, "--reason", "a test order"])
            .succeeded();
        assert_eq!(said.out, format!("buried 1\nburied {waiting}\n"));

        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        let answer = tenure.settle(&settle).await.unwrap();
        let refused: Vec<_> = answer.refused().map(|(_, why)| why).collect();
        assert_eq!(refused, [Refusal::AlreadySettled]);

        let shown = place
            .run(&["show", &waiting, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        assert_eq!(shown["state"], "dead");
        assert_eq!(shown["dead_reason"], "buried");
        assert_eq!(shown["last_error"], "a test order");
        let holder = shown["timeline"][0]["holder"].as_str().unwrap();
        assert!(holder.starts_with("operator-"), "{holder}");
    }
}

#[tokio::test]
async fn what_is_settled_stays_as_it_is() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let said = place
            .run(&["bury", &done, "--reason", "test", "--json"])
            .ended(4);
        let expected =
            format!("{{\"id\":{done},\"kept\":false,\"refused\":\"already_settled\"}}\n");
        assert_eq!(said.out, expected);
        let shown = place.run(&["show", &done, "--json"]).succeeded();
        assert_eq!(shown.field("state"), "\"done\"");
        place.run(&["bury", "99", "--reason", "test"]).ended(3);
    }
}

#[test]
fn a_bury_without_a_reason_is_refused() {
    let said = sqlite().run(&["bury", "1", "--reason", ""]).ended(2);
    assert!(said.err.contains("--reason"), "{said:?}");
}
