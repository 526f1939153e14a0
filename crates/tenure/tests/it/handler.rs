//! Handlers: typed payloads, every kind of error as a retry, and the two return values that mean
//! done.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::error::Error;
use std::time::Duration;

use anyhow::Context as _;
use tenure::lease::Record;
use tenure::{Context, Enqueued, Event, Failure, NewEvent, Outcome, State, Tenure, WorkerBuilder};

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    id: u64,
    customer: String,
}

fn order() -> Order {
    Order {
        id: 7,
        customer: "ann".to_owned(),
    }
}

async fn memory() -> (Tenure, Enqueued) {
    let tenure = Tenure::open("memory:").await.unwrap();
    let event = NewEvent::new("order.paid", &order()).key("ann");
    let enqueued = tenure.enqueue_now(event).await.unwrap();
    (tenure, enqueued)
}

/// Runs the handler on an event; returns the event after its settle.
async fn answered(tenure: &Tenure, worker: WorkerBuilder, event: Enqueued) -> Record {
    let worker = worker.start().await.unwrap();
    let record = loop {
        let record = tenure.find(&[event.id()]).await.unwrap().pop().unwrap();
        let is_settled = record.hold.is_none();
        if is_settled && (record.counters.failures > 0 || record.state.is_terminal()) {
            break record;
        }
        tokio::task::yield_now().await;
    };
    worker.stop().await;
    record
}

#[expect(clippy::unused_async, reason = "a handler is async")]
async fn of_anyhow(order: Order) -> anyhow::Result<Outcome> {
    "many"
        .parse::<u64>()
        .with_context(|| format!("price of order {}", order.id))?;
    Ok(Outcome::Done)
}

fn of_a_box() -> Result<u64, Box<dyn Error + Send + Sync>> {
    Ok("many".parse()?)
}

#[tokio::test]
async fn every_error_is_a_retry_and_its_causes_are_kept() {
    type Build = fn(WorkerBuilder) -> WorkerBuilder;
    let digit = "invalid digit found in string";
    let cases: [(&str, Build, &str); 5] = [
        (
            "std",
            |worker| {
                worker.on_json("*", |_: Order, _| async {
                    "many".parse::<u64>()?;
                    Ok(())
                })
            },
            digit,
        ),
        (
            "boxed",
            |worker| {
                worker.on_json("*", |_: Order, _| async {
                    of_a_box()?;
                    Ok(Outcome::Done)
                })
            },
            digit,
        ),
        (
            "anyhow",
            |worker| worker.on_json("*", |order, _| async move { Ok(of_anyhow(order).await?) }),
            "price of order 7: invalid digit found in string",
        ),
        (
            "text",
            |worker| {
                worker.on("*", |event: Event, _| async move {
                    if event.key() == Some("ann") {
                        Err("not for ann")?;
                    }
                    Ok(())
                })
            },
            "not for ann",
        ),
        (
            "failure",
            |worker| {
                worker.on("*", |_, _| async move {
                    Err(Failure::new("later").after(Duration::from_hours(1)))?;
                    Ok(())
                })
            },
            "later",
        ),
    ];
    for (name, with, expected) in cases {
        let (tenure, event) = memory().await;
        let record = answered(&tenure, with(tenure.worker()), event).await;
        assert_eq!(record.last_error.as_deref(), Some(expected), "{name}");
        assert_eq!(record.counters.failures, 1, "{name}");
        assert!(!record.state.is_terminal(), "{name}");
    }
}

#[tokio::test]
async fn a_failure_that_is_never_retried_is_dead_at_once() {
    let (tenure, event) = memory().await;
    let worker = tenure.worker().on("*", |_, _| async {
        Err(Failure::new("no such customer").never())?;
        Ok(())
    });
    let record = answered(&tenure, worker, event).await;
    assert_eq!(record.state, State::Dead);
    assert_eq!(record.last_error.as_deref(), Some("no such customer"));
}

#[tokio::test]
async fn a_payload_of_another_type_is_retried_with_a_detailed_error() {
    #[derive(serde::Deserialize)]
    struct Refund {
        #[expect(dead_code, reason = "the test needs only the name of the field")]
        amount: u64,
    }
    let (tenure, event) = memory().await;
    let worker = tenure
        .worker()
        .on_json("*", |_: Refund, _| async { Ok(()) });
    let record = answered(&tenure, worker, event).await;
    let error = record.last_error.unwrap();
    for part in [
        "order.paid",
        "Refund",
        "missing field `amount`",
        "line 1 column",
    ] {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
    assert!(!record.state.is_terminal());
}

#[tokio::test]
async fn a_typed_handler_has_the_payload_and_the_rest_of_its_event() {
    let (tenure, event) = memory().await;
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let worker = tenure
        .worker()
        .on_json("*", move |order: Order, cx: Context| {
            let tell = tell.clone();
            async move {
                let event = cx.event().ok_or("no event")?;
                let key = event.key().map(str::to_owned);
                tell.send((order.customer, key, event.event_id())).await?;
                Ok(())
            }
        });
    let record = answered(&tenure, worker, event).await;
    assert_eq!(record.state, State::Done);
    let (customer, key, event_id) = told.recv().await.unwrap();
    assert_eq!((customer.as_str(), key.as_deref()), ("ann", Some("ann")));
    let Enqueued::Fresh {
        event_id: drawn, ..
    } = event
    else {
        panic!("it is new");
    };
    assert_eq!(event_id, Some(drawn));
}
