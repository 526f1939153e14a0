//! `tenure show` prints the facts, the payload and the timeline of an event, without tokens.

use crate::program::everywhere;

#[tokio::test]
async fn an_event_is_printed_with_its_holds_and_without_its_token() {
    for place in everywhere().await {
        let id = place.enqueue("order.paid");
        place.lapsed().await;
        place.run(&["reap"]).succeeded();
        let (_, held) = place.held().await;
        let secret = held.lease.token.expose().rsplit('.').next().unwrap();

        let output = place.run(&["show", &id]).succeeded();
        for expected in [
            "claimed",
            "order.paid",
            held.lease.token.holder(),
            "lapsed",
            "crashes",
        ] {
            assert!(output.out.contains(expected), "no {expected} in {output:?}");
        }
        assert!(!output.out.contains(secret), "{output:?}");

        for args in [
            &["show", &id, "--json"][..],
            &["events", "--json"],
            &["events"],
        ] {
            let output = place.run(args).succeeded();
            assert!(!output.out.contains(secret), "{output:?}");
        }
        let details = place
            .run(&["show", &id, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        assert_eq!(details["state"], "claimed");
        assert_eq!(details["holder"], held.lease.token.holder());
        assert_eq!(details["crashes"], 1);
        assert_eq!(details["timeline"][0]["outcome"], "lapsed");
        assert_eq!(details["timeline"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn the_field_names_are_stable() {
    for place in everywhere().await {
        let id = place.enqueue("order.paid");
        let details = place
            .run(&["show", &id, "--json"])
            .succeeded()
            .objects()
            .remove(0);
        let names: Vec<_> = details.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            names.join(" "),
            "attempts available_at behind claimed_at crashes created_at dead_at dead_reason \
             done_at encoding event_id failures fence generation headers holder id key last_error \
             payload priority queue state timeline topic until"
        );
    }
}

#[tokio::test]
async fn the_attempt_that_succeeded_is_counted() {
    for place in everywhere().await {
        let id = place.enqueue("order.paid");
        place.run(&["work", "--print", "--drain"]).succeeded();
        let shown = place.run(&["show", &id]).succeeded();
        assert!(shown.out.contains("\nattempts    1\n"), "{shown:?}");
        for args in [&["show", &id, "--json"][..], &["events", "--json"]] {
            assert_eq!(place.run(args).succeeded().field("attempts"), "1");
        }
    }
}

#[tokio::test]
async fn show_names_the_event_that_an_event_waits_behind() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        let (_, held) = place.held().await;
        let second = place.enqueue_keyed("customer-7");
        let output = place.run(&["show", &second]).succeeded();
        let holder = held.lease.token.holder();
        let behind = format!("behind      event {first} (claimed: {holder}; lapses in ");
        for expected in ["key         customer-7\n", &behind] {
            assert!(
                output.out.contains(expected),
                "no {expected:?} in {output:?}"
            );
        }
        let details = place.run(&["show", &second, "--json"]).succeeded();
        assert_eq!(details.field("key"), "\"customer-7\"");
        assert_eq!(details.field("behind"), first);
        let details = place.run(&["show", &first, "--json"]).succeeded();
        assert_eq!(details.field("behind"), "null");
    }
}

#[tokio::test]
async fn an_unknown_id_gives_exit_code_3() {
    for place in everywhere().await {
        for id in ["17", "0", "4503599627370496"] {
            let output = place.run(&["show", id]);
            output.failed(3, &format!("there is no event {id}"), "tenure events");
        }
    }
}
