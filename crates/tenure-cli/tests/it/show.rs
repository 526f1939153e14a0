//! `tenure show`: the facts, the payload, the timeline; never a token.

use crate::program::everywhere;

#[tokio::test]
async fn an_event_is_shown_with_its_holds_and_without_its_token() {
    for place in everywhere().await {
        let id = place.enqueue("order.paid");
        place.lapsed().await;
        place.run(&["reap"]).succeeded();
        let (_, held) = place.held().await;
        let secret = held.lease.token.expose().rsplit('.').next().unwrap();

        let said = place.run(&["show", &id]).succeeded();
        for expected in [
            "claimed",
            "order.paid",
            held.lease.token.holder(),
            "lapsed",
            "crashes",
        ] {
            assert!(said.out.contains(expected), "no {expected} in {said:?}");
        }
        assert!(!said.out.contains(secret), "{said:?}");

        for args in [
            &["show", &id, "--json"][..],
            &["events", "--json"],
            &["events"],
        ] {
            let said = place.run(args).succeeded();
            assert!(!said.out.contains(secret), "{said:?}");
        }
        let shown = place
            .run(&["show", &id, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        assert_eq!(shown["state"], "claimed");
        assert_eq!(shown["holder"], held.lease.token.holder());
        assert_eq!(shown["crashes"], 1);
        assert_eq!(shown["timeline"][0]["outcome"], "lapsed");
        assert_eq!(shown["timeline"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn the_field_names_are_stable() {
    for place in everywhere().await {
        let id = place.enqueue("order.paid");
        let shown = place
            .run(&["show", &id, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        let names: Vec<_> = shown.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            names.join(" "),
            "attempts available_at behind claimed_at crashes created_at dead_at dead_reason \
             done_at encoding event_id failures fence generation headers holder id key last_error \
             payload priority queue state timeline topic until"
        );
    }
}

#[tokio::test]
async fn an_event_behind_another_of_its_key_says_which() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let (_, held) = place.held().await;
        let second = place.enqueue_keyed("customer-7");
        let said = place.run(&["show", &second]).succeeded();
        let holder = held.lease.token.holder();
        let behind = format!("behind      event {first} (claimed: {holder}; lapses in ");
        for expected in ["key         customer-7\n", &behind] {
            assert!(said.out.contains(expected), "no {expected:?} in {said:?}");
        }
        let shown = place.run(&["show", &second, "--json"]).succeeded();
        assert_eq!(shown.field("key"), "\"customer-7\"");
        assert_eq!(shown.field("behind"), first);
        let shown = place.run(&["show", &first, "--json"]).succeeded();
        assert_eq!(shown.field("behind"), "null");
    }
}

#[tokio::test]
async fn an_unknown_id_ends_with_3() {
    for place in everywhere().await {
        for id in ["17", "0", "4503599627370496"] {
            let said = place.run(&["show", id]);
            said.failed(3, &format!("there is no event {id}"), "tenure events");
        }
    }
}
