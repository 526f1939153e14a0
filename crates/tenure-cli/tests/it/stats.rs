//! `tenure stats` counts every event in its state.

use crate::program::everywhere;

#[tokio::test]
async fn every_event_is_counted_once() {
    for place in everywhere().await {
        place.enqueue("a");
        place.done().await;
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        place.enqueue("a");
        let (_tenure, _held) = place.held().await;
        place.enqueue("a");
        place
            .run(&["enqueue", "a", "1", "--delay", "1h"])
            .succeeded();

        let counts = place
            .run(&["stats", "--json"])
            .succeeded()
            .objects()
            .remove(0);
        for (name, number) in [
            ("pending", 2),
            ("claimed", 1),
            ("lapsed", 0),
            ("done", 1),
            ("dead", 1),
        ] {
            assert_eq!(counts[name], number, "{name} in {counts}");
        }
        let queue = &counts["queues"][0];
        assert_eq!(queue["queue"], "default");
        assert_eq!((&queue["due"], &queue["delayed"]), (&1.into(), &1.into()));
        assert!(queue["oldest_due_ms"].is_u64(), "{queue}");

        let output = place.run(&["stats"]).succeeded();
        assert!(
            output
                .out
                .starts_with("PENDING  CLAIMED  LAPSED  DONE  DEAD\n"),
            "{output:?}"
        );
        assert!(
            output.out.contains("\ndefault    1        1  "),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn events_behind_the_head_of_their_key_are_counted_separately() {
    for place in everywhere().await {
        place.enqueue_keyed("customer-7");
        let (tenure, _held) = place.held().await;
        place.enqueue_keyed("customer-7");
        place.enqueue_keyed("customer-7");
        // On PostgreSQL, this claim processes the arrivals of both events.
        assert!(tenure.claim(1).await.unwrap().is_none());
        let output = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(output.field("pending"), "2");
        let queue = &output.objects()[0]["queues"][0];
        assert_eq!((&queue["due"], &queue["behind"]), (&0.into(), &2.into()));
        let output = place.run(&["stats"]).succeeded();
        let expected = "\ndefault    0        0       2";
        assert!(output.out.contains(expected), "{output:?}");
    }
}

#[tokio::test]
async fn pauses_and_lapsed_leases_are_reported() {
    for place in everywhere().await {
        place.enqueue("a");
        place.lapsed().await;
        place.run(&["queues", "pause", "default"]).succeeded();

        let output = place.run(&["stats"]).succeeded();
        assert!(
            output
                .out
                .ends_with("\ndefault    0        0       0              paused\n"),
            "{output:?}"
        );
        assert_eq!(
            output.err,
            "1 event is held under a lapsed lease: a running worker ends lapsed leases, as does \
             `tenure reap`\n"
        );
        let output = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(output.objects()[0]["queues"][0]["paused"], true);
        assert_eq!(output.err, "");
    }
}
