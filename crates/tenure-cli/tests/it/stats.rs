//! `tenure stats`: every event is counted where it stands.

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

        let said = place.run(&["stats"]).succeeded();
        assert!(
            said.out
                .starts_with("PENDING  CLAIMED  LAPSED  DONE  DEAD\n"),
            "{said:?}"
        );
        assert!(said.out.contains("\ndefault    1        1  "), "{said:?}");
    }
}

#[tokio::test]
async fn what_waits_behind_another_of_its_key_is_counted_apart() {
    for place in everywhere().await {
        place.enqueue_keyed("customer-7");
        let (tenure, _held) = place.held().await;
        place.enqueue_keyed("customer-7");
        place.enqueue_keyed("customer-7");
        // A claim finds them their places.
        assert!(tenure.claim(1).await.unwrap().is_none());
        let said = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(said.field("pending"), "2");
        let queue = &said.objects()[0]["queues"][0];
        assert_eq!((&queue["due"], &queue["behind"]), (&0.into(), &2.into()));
        let said = place.run(&["stats"]).succeeded();
        let expected = "\ndefault    0        0       2";
        assert!(said.out.contains(expected), "{said:?}");
    }
}

#[tokio::test]
async fn what_keeps_events_waiting_is_said() {
    for place in everywhere().await {
        place.enqueue("a");
        place.lapsed().await;
        place.run(&["queues", "pause", "default"]).succeeded();

        let said = place.run(&["stats"]).succeeded();
        assert!(
            said.out
                .ends_with("\ndefault    0        0       0              paused\n"),
            "{said:?}"
        );
        assert_eq!(
            said.err,
            "1 event held past the term: `tenure reap` ends that, as does a claim that finds \
             nothing else\n"
        );
        let said = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(said.objects()[0]["queues"][0]["paused"], true);
        assert_eq!(said.err, "");
    }
}
