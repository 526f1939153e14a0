//! A worker through the public API: invalid options, health and stopping.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::time::Duration;

use tenure::{Context, Event, Outcome, Settings, StoreConfig, Tenure, WorkerBuilder, WorkerError};
use tenure_store::testing;

async fn memory() -> Tenure {
    Tenure::open("memory:").await.unwrap()
}

/// A worker with one handler.
fn worker(tenure: &Tenure) -> WorkerBuilder {
    let done = |_: Event, _: Context| async { Ok(Outcome::Done) };
    tenure.worker().on("*", done)
}

#[tokio::test]
async fn all_problems_are_reported_together() {
    let settings = Settings {
        concurrency: 0,
        heartbeat: Some(Duration::from_secs(10)),
        ..Settings::default()
    };
    let error = worker(&memory().await)
        .on("ord*", |_, _| async { Ok(Outcome::Done) })
        .queues(["default", ""])
        .settings(settings)
        .start()
        .await
        .unwrap_err();
    let WorkerError::Invalid(problems) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(problems.len(), 4, "{problems:?}");
    let text = error.to_string();
    for part in ["ord*", "queue", "concurrency", "heartbeat"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[tokio::test]
async fn a_worker_without_handlers_does_not_start() {
    let error = memory().await.worker().start().await.unwrap_err();
    assert!(error.to_string().contains("handlers"), "{error}");
}

#[tokio::test]
async fn the_first_worker_has_the_id_of_its_tenure_and_a_watch_outlives_it() {
    let tenure = memory().await;
    let worker = worker(&tenure).start().await.unwrap();
    assert_eq!(worker.health().worker, *tenure.worker_id());
    let watch = worker.watch();
    assert!(watch.health().is_some());
    worker.stop().await;
    assert!(watch.health().is_none());
    watch.wake();
    tenure
        .enqueue_now(Event::new("a", &1).unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn run_until_stops_the_worker_when_the_future_completes() {
    let tenure = memory().await;
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker(&tenure).run_until(ended));
    end.send(()).unwrap();
    running.await.unwrap().unwrap();
}

/// Goal: a process has no more connections than allowed, including those of the heartbeat. Method:
/// the test allows fewer than a worker needs, and then just enough.
#[tokio::test]
async fn a_worker_on_postgresql_needs_three_connections() {
    let database = testing::migrated().await;
    for (connections, is_enough) in [(2, false), (3, true)] {
        let config = StoreConfig {
            connections,
            ..StoreConfig::default()
        };
        let tenure = Tenure::open_with(&database.url, &config, "few")
            .await
            .unwrap();
        match worker(&tenure).start().await {
            Ok(worker) => {
                assert!(is_enough);
                worker.stop().await;
            }
            Err(error) => {
                assert!(!is_enough, "{error}");
                assert!(error.to_string().contains("connections is 2"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn two_workers_of_one_program_leave_separately() {
    let tenure = Tenure::open_with("memory:", &StoreConfig::default(), "back-office")
        .await
        .unwrap();
    let first = worker(&tenure).start().await.unwrap();
    let second = worker(&tenure).start().await.unwrap();
    let (one, two) = (first.health().worker, second.health().worker);
    assert_ne!(one, two);
    assert!(two.as_str().starts_with("back-office-"), "{two}");
    // Waits until this many workers have registered.
    let seen = async |number: usize| loop {
        let (_, workers) = tenure.workers(9).await.unwrap();
        if workers.len() == number {
            return workers;
        }
        tokio::task::yield_now().await;
    };
    seen(2).await;
    first.stop().await;
    for record in seen(2).await {
        let has_left = record.left_at.is_some();
        assert_eq!(has_left, record.report.worker == one, "{record:?}");
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(record.report.host, host.trim());
    }
    second.stop().await;
}
