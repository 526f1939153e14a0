//! `tenure queues` adds, lists, pauses and resumes queues.

use crate::program::everywhere;

#[tokio::test]
async fn a_paused_queue_is_not_claimed_until_it_is_resumed() {
    for place in everywhere().await {
        place.enqueue("a");
        let tenure = place.tenure().await;
        let output = place.run(&["queues", "pause", "default"]).succeeded();
        assert_eq!(output.out, "paused queue default\n");
        assert!(tenure.claim(1).await.unwrap().is_none());
        let output = place
            .run(&["queues", "resume", "default", "--json"])
            .succeeded();
        assert_eq!(output.field("paused"), "false");
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
        // A second `add` without a term does not reset the term.
        place.run(&["queues", "add", "mail"]).succeeded();
        place.run(&["queues", "add", "audit"]).succeeded();
        let output = place.run(&["queues", "--json"]).succeeded();
        assert_eq!(
            output.column("queue"),
            ["\"audit\"", "\"default\"", "\"mail\""]
        );
        assert_eq!(output.column("term_ms"), ["null", "null", "120000"]);
        let output = place.run(&["queues", "list"]).succeeded();
        assert!(output.out.contains("\nmail     2m"), "{output:?}");
    }
}

#[tokio::test]
async fn an_unknown_queue_gives_exit_code_3() {
    for place in everywhere().await {
        let output = place.run(&["queues", "pause", "mail"]);
        output.failed(3, "there is no queue mail", "tenure queues add");
    }
}
