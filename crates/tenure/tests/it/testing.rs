//! The test kit on every store, inside a user's transaction, and with every fault.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::testing::{Fault, TestWorker, enqueued, enqueued_on, expect};
use tenure::{Context, Fence, HandlerOptions, NewEvent, Tenure};
use tenure_store::testing;

/// A store of each kind, with the guard that keeps its database alive.
async fn stores() -> Vec<(&'static str, Tenure, Box<dyn std::any::Any>)> {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", folder.path().join("shop.db").display());
    let database = testing::migrated().await;
    let open = async |url: &str| Tenure::open(url).await.unwrap();
    vec![
        ("memory", open("memory:").await, Box::new(())),
        ("sqlite", open(&file).await, Box::new(folder)),
        ("postgres", open(&database.url).await, Box::new(database)),
    ]
}

type Fences = Arc<Mutex<Vec<Fence>>>;

/// A worker whose handler records the fences of its calls.
fn noting(tenure: &Tenure) -> (TestWorker, Fences) {
    let fences = Fences::default();
    let noted = Arc::clone(&fences);
    let handler = move |_: u64, cx: Context| {
        noted.lock().unwrap().push(cx.fence());
        async { Ok(()) }
    };
    let worker = tenure.worker().on_json("order.*", handler);
    (worker.test().unwrap(), fences)
}

fn paid(order: u64) -> NewEvent {
    NewEvent::new("order.paid", &order).key("ann")
}

#[tokio::test]
async fn every_fault_happens_once_and_nothing_is_lost() {
    for (name, tenure, _kept) in stores().await {
        for fault in [
            Fault::CrashBeforeSettle,
            Fault::LeaseStolen,
            Fault::ClaimAnswerLost,
            Fault::SettleAnswerLost,
        ] {
            let (mut worker, fences) = noting(&tenure);
            tenure.enqueue_now([paid(1), paid(2)]).await.unwrap();
            worker.next(fault);
            let first = worker.work_until_idle().await.unwrap();
            worker.advance(Duration::from_mins(2));
            let second = worker.work_until_idle().await.unwrap();
            let what = format!("{name}, {fault:?}: {first:?}, {second:?}");
            assert_eq!(first.done + second.done, 2, "{what}");
            let calls = match fault {
                Fault::CrashBeforeSettle | Fault::LeaseStolen => 3,
                Fault::ClaimAnswerLost | Fault::SettleAnswerLost | _ => 2,
            };
            let fences = fences.lock().unwrap().clone();
            assert_eq!(fences.len(), calls, "{what}");
            assert!(fences.is_sorted(), "{what}: {fences:?}");
            assert_eq!(
                first.refused,
                u32::from(fault == Fault::LeaseStolen),
                "{what}"
            );
            assert_eq!(
                first.crashed,
                u32::from(fault == Fault::CrashBeforeSettle),
                "{what}"
            );
            // Both events are done, so nothing is left to work on.
            assert_eq!(worker.work_until_idle().await.unwrap().handled, 0, "{what}");
        }
    }
}

#[tokio::test]
async fn retries_are_due_by_the_clock_of_the_test_and_run_out() {
    for (name, tenure, _kept) in stores().await {
        tenure.enqueue_now(paid(7)).await.unwrap();
        let worker = tenure
            .worker()
            .on_json("*", |_: u64, _: Context| async {
                Err("503")?;
                Ok(())
            })
            .with(HandlerOptions::new().retries(2));
        let mut worker = worker.test().unwrap();
        for wait in [0, 1, 2] {
            assert_eq!(worker.work_until_idle().await.unwrap().dead, 0, "{name}");
            worker.advance(Duration::from_secs(wait));
        }
        worker.advance(Duration::from_secs(4));
        let last = worker.work_until_idle().await.unwrap();
        assert_eq!((last.dead, last.handled), (1, 1), "{name}");
    }
}

#[tokio::test]
async fn a_failed_assertion_lists_all_enqueued_events() {
    for (name, tenure, _kept) in stores().await {
        let none = enqueued(&tenure).await.unwrap();
        assert_eq!(none.to_string(), "nothing was", "{name}");
        tenure.enqueue_now([paid(1), paid(2)]).await.unwrap();
        let all = enqueued(&tenure).await.unwrap();
        all.assert_has(&expect("order.paid").key("ann").json(&2));
        all.assert_count(2, &expect("order.paid"));
        all.assert_lacks(&expect("order.paid").key("bob"));
        let failed = std::panic::catch_unwind(|| all.assert_has(&expect("order.paid").key("bob")));
        let text = failed.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(
            *text,
            "an event order.paid with key \"bob\" was not enqueued; these were:\n  \
             order.paid key \"ann\" 1\n  order.paid key \"ann\" 2",
            "{name}"
        );
    }
}

#[tokio::test]
async fn inside_the_users_transaction_only_its_own_events_are_seen() {
    let database = testing::migrated().await;
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let tenure = Tenure::builder().pool(pool.clone()).open().await.unwrap();
    tenure.enqueue_now(paid(1)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    tenure
        .enqueue(&mut *tx, paid(2).header("trace", "a"))
        .await
        .unwrap();
    let mut other = pool.begin().await.unwrap();
    tenure.enqueue(&mut *other, paid(3)).await.unwrap();
    let mine = enqueued_on(&tenure, &mut *tx).await.unwrap();
    mine.assert_count(1, &expect("order.paid"));
    mine.assert_has(&expect("order.paid").key("ann").json(&2));
    assert_eq!(mine.iter().next().unwrap().headers()["trace"], "a");
    tx.rollback().await.unwrap();
    other.rollback().await.unwrap();
    enqueued(&tenure)
        .await
        .unwrap()
        .assert_count(1, &expect("order.paid"));
}
