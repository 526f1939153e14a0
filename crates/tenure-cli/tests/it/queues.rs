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
async fn a_queue_has_its_own_retries_until_others_are_given() {
    for place in everywhere().await {
        let add = ["queues", "add", "mail", "--max-retries", "3"];
        place
            .run(&[&add[..], &["--retry-base", "5s"]].concat())
            .succeeded();
        let output = place.run(&["queues", "add", "mail", "--retry-cap", "1h", "--json"]);
        let output = output.succeeded();
        assert_eq!(output.field("max_retries"), "3");
        assert_eq!(output.field("retry_base_ms"), "5000");
        assert_eq!(output.field("retry_cap_ms"), "3600000");
        assert_eq!(output.field("term_ms"), "null");
        let output = place.run(&["queues", "list"]).succeeded();
        assert!(
            output.out.contains("\nmail     30s   3 in up to 35s"),
            "{output:?}"
        );
        let default = "\ndefault  30s   25 in up to 5d 6h";
        assert!(output.out.contains(default), "{output:?}");
        let output = place.run(&["queues", "add", "mail", "--retry-cap", "1s"]);
        output.failed(
            2,
            "retry_cap is 1s; expected at least retry_base (5s)",
            "nothing was changed",
        );
    }
}

#[tokio::test]
async fn an_unknown_queue_gives_exit_code_3() {
    for place in everywhere().await {
        let output = place.run(&["queues", "pause", "mail"]);
        output.failed(3, "there is no queue mail", "tenure queues add");
    }
}
