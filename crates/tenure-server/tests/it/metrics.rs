//! `/metrics`: the metrics of the process and the gauges of the store.

use tenure_core::Event;

use crate::client::{Server, memory, ports};

#[tokio::test]
async fn metrics_are_prometheus_text_with_gauges_of_the_store() {
    let store = memory();
    let events = [Event::new("a", &1).unwrap(), Event::new("a", &2).unwrap()];
    store.enqueue(&events).await.unwrap();
    let server = Server::start(ports(std::sync::Arc::clone(&store))).await;

    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4"));
    for line in [
        "tenure_claims_total 7",
        "tenure_items{state=\"pending\"} 2",
        "tenure_items{state=\"dead\"} 0",
        "tenure_queue_items{queue=\"default\",when=\"due\"} 2",
    ] {
        assert!(answer.body.lines().any(|other| other == line), "{answer:?}");
    }

    // The store is not counted again at each scrape.
    store.enqueue(&events).await.unwrap();
    let again = server.get("/metrics").await;
    assert_eq!(pending(&again.body), pending(&answer.body));
}

fn pending(text: &str) -> Option<&str> {
    text.lines().find(|line| line.contains("pending"))
}
