//! Webhooks through the public API: pending deliveries, calls, and the operators' view.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::sync::Arc;

use tenure::lease::Refusal;
use tenure::operate::Filter;
use tenure::publish::TopicPattern;
use tenure::webhook::{
    AttemptOutcome, Caller, Calling, Disabled, EndpointId, EndpointSettings, EndpointState,
    NewEndpoint, Reply, Request,
};
use tenure::{Event, ItemId, Settings, State, Tenure};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Accepts every call and passes it on to the test.
#[derive(Debug)]
struct Taker(UnboundedSender<String>);

impl Caller for Taker {
    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a> {
        let told = format!("{} {}", request.endpoint.id, request.event.topic());
        self.0.send(told).unwrap();
        Box::pin(async { Reply::status(204) })
    }
}

fn taker() -> (Arc<Taker>, UnboundedReceiver<String>) {
    let (send, calls) = unbounded_channel();
    (Arc::new(Taker(send)), calls)
}

async fn endpoint(tenure: &Tenure, id: &str, topics: &str) -> EndpointId {
    let id = EndpointId::new(id).unwrap();
    let topics = vec![TopicPattern::new(topics).unwrap()];
    let new = NewEndpoint {
        id: id.clone(),
        settings: EndpointSettings::new("https://example.com", topics),
        sealed: String::new(),
    };
    assert!(tenure.add_endpoint(&new).await.unwrap().is_some());
    id
}

async fn enqueue(tenure: &Tenure, topic: &str) -> ItemId {
    let event = Event::new(topic, &7).unwrap();
    tenure.enqueue_now(event).await.unwrap().id()
}

#[tokio::test]
async fn a_done_event_is_delivered_to_each_subscribed_endpoint() {
    let tenure = Tenure::open("memory:").await.unwrap();
    endpoint(&tenure, "billing", "order.*").await;
    endpoint(&tenure, "audit", "*").await;
    let (taker, mut calls) = taker();
    let sender = tenure.sender(taker).start().await.unwrap();
    let worker = tenure.worker().fan_out().wakes(&sender);
    let worker = worker.start().await.unwrap();
    enqueue(&tenure, "order.paid").await;
    let mut heard = [calls.recv().await.unwrap(), calls.recv().await.unwrap()];
    heard.sort();
    assert_eq!(heard, ["audit order.paid", "billing order.paid"]);
    worker.stop().await;
    sender.stop().await;

    let page = tenure.deliveries(&Filter::default(), 9).await.unwrap();
    assert_eq!(page.records.len(), 2);
    for record in &page.records {
        assert_eq!(record.state, State::Done);
        let attempts = tenure.attempts(record.id).await.unwrap();
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].outcome, AttemptOutcome::Delivered);
    }
    assert!(tenure.attempts(ItemId::new(99)).await.unwrap().is_empty());
}

/// With or without handlers of its own, the worker takes only the topics that it can do something
/// with; the event of another topic waits, and loses no attempt.
#[tokio::test]
async fn an_event_without_a_receiver_waits() {
    for has_handler in [true, false] {
        let tenure = Tenure::open("memory:").await.unwrap();
        endpoint(&tenure, "billing", "order.*").await;
        let mut worker = tenure.worker().fan_out();
        if has_handler {
            worker = worker.on("mail.*", |_, _| async { Ok(tenure::Outcome::Done) });
        }
        let worker = worker.start().await.unwrap();
        let other = enqueue(&tenure, "other").await;
        let owed = enqueue(&tenure, "order.paid").await;
        let own = enqueue(&tenure, "tenure.endpoint.disabled").await;
        loop {
            let found = tenure.find(&[owed, own]).await.unwrap();
            if found.iter().all(|record| record.state == State::Done) {
                break;
            }
            tokio::task::yield_now().await;
        }
        worker.stop().await;
        let record = tenure.find(&[other]).await.unwrap().remove(0);
        assert_eq!(
            (record.state, record.counters.attempts),
            (State::Pending, 0)
        );
        let untaken = tenure.untaken_topics().await.unwrap();
        assert_eq!(untaken[0].topic, "other");
    }
}

#[tokio::test]
async fn an_edit_starts_from_the_current_values_of_the_endpoint() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let id = endpoint(&tenure, "billing", "*").await;
    let changed = tenure
        .edit_endpoint(&id, |it| it.settings.concurrency = 3)
        .await
        .unwrap();
    assert!(changed.is_accepted());
    let seen = tenure.endpoint(&id).await.unwrap().unwrap();
    assert_eq!((seen.settings.concurrency, seen.version), (3, 2));
    let nobody = EndpointId::new("nobody").unwrap();
    let answer = tenure.edit_endpoint(&nobody, |_| {}).await.unwrap();
    assert_eq!(answer.refusal(), Some(Refusal::NotFound));
}

#[tokio::test]
async fn why_names_the_endpoint() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let id = endpoint(&tenure, "billing", "*").await;
    let worker = tenure.worker().fan_out().start().await.unwrap();
    enqueue(&tenure, "order.paid").await;
    let delivery = loop {
        let page = tenure.deliveries(&Filter::default(), 1).await.unwrap();
        if let Some(record) = page.records.first() {
            break record.id;
        }
        tokio::task::yield_now().await;
    };
    worker.stop().await;
    let why = async || {
        let settings = Settings::default();
        tenure.why(delivery, &settings).await.unwrap().unwrap()
    };
    assert_eq!(why().await.code, "no_worker");
    let since = tenure::store::Timestamp::from_micros(0);
    let off = EndpointState::Disabled {
        why: Disabled::Gone,
        since,
    };
    let changed = tenure
        .edit_endpoint(&id, |it| it.state.clone_from(&off))
        .await;
    assert!(changed.unwrap().is_accepted());
    let why = why().await;
    assert_eq!(why.code, "endpoint_disabled");
    assert!(why.sentence.contains("billing") && why.sentence.contains("410"));
}
