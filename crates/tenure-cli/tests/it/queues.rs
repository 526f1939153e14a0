//! `tenure queues`: declared, listed, paused, resumed.

use crate::program::everywhere;

#[tokio::test]
async fn a_paused_queue_is_passed_by_until_it_is_resumed() {
    for place in everywhere().await {
        place.enqueue("a");
        let tenure = place.tenure().await;
        let said = place.run(&["queues", "pause", "default"]).succeeded();
        assert_eq!(said.out, "paused default\n");
        assert!(tenure.claim(1).await.unwrap().is_none());
        let said = place
            .run(&["queues", "resume", "default", "--json"])
            .succeeded();
        assert_eq!(said.field("paused"), "false");
        assert!(tenure.claim(1).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn queues_are_listed_by_name() {
    for place in everywhere().await {
        place
            .run(&["queues", "add", "mail", "--term", "90s"])
            .succeeded();
        place
            .run(&["queues", "add", "mail", "--term", "2m"])
            .succeeded();
        // Said again without a term, it keeps the one it has.
        place.run(&["queues", "add", "mail"]).succeeded();
        place.run(&["queues", "add", "audit"]).succeeded();
        let said = place.run(&["queues", "--json"]).succeeded();
        assert_eq!(
            said.column("queue"),
            ["\"audit\"", "\"default\"", "\"mail\""]
        );
        assert_eq!(said.column("term_ms"), ["null", "null", "120000"]);
        let said = place.run(&["queues", "list"]).succeeded();
        assert!(said.out.contains("\nmail     2m"), "{said:?}");
    }
}

#[tokio::test]
async fn an_unknown_queue_ends_with_3() {
    for place in everywhere().await {
        let said = place.run(&["queues", "pause", "mail"]);
        said.failed(3, "there is no queue mail", "tenure queues add");
    }
}
