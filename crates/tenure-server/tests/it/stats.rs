//! `/v1/stats`.

use tenure_core::Event;
use tenure_core::store::Pause;

use crate::client::{Server, memory, ports};

#[tokio::test]
async fn every_item_is_counted_by_its_state() {
    let store = memory();
    let event = Event::new("a", &1).unwrap();
    store.enqueue(std::slice::from_ref(&event)).await.unwrap();
    let queue = event.queue();
    assert!(
        store
            .pause_queue(queue, Pause::Begin)
            .await
            .unwrap()
            .is_accepted()
    );
    let server = Server::start(ports(store)).await;

    let answer = server.get("/v1/stats").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json();
    for (name, number) in [
        ("pending", 1),
        ("claimed", 0),
        ("lapsed", 0),
        ("done", 0),
        ("dead", 0),
    ] {
        assert_eq!(body[name], number, "{name} in {body}");
    }
    let queue = &body["queues"][0];
    assert_eq!(
        (&queue["queue"], &queue["paused"]),
        (&"default".into(), &true.into())
    );
    assert!(queue["oldest_due_ms"].is_u64(), "{body}");
    let deliveries = &body["deliveries"];
    for name in ["pending", "claimed", "lapsed", "delivered", "dead"] {
        assert_eq!(deliveries[name], 0, "{name} in {body}");
    }
    assert_eq!(deliveries["endpoints"], serde_json::json!([]));
}
